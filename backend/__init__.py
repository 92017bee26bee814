"""Plan to packages to a running job."""
