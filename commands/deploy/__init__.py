"""Copy the packages to their boards: only what changed, verified, all or nothing."""
