"""Show where the time of each frame goes, and what limits the rate."""
