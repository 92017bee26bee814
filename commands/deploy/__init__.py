"""Bring the packages to their boards: what has changed alone, checked there, all or nothing."""
