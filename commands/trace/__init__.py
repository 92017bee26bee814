"""Show where the time of each frame goes, and name the bottleneck."""
