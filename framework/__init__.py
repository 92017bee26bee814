"""Records, specs and files that all rooms share."""
