"""Pages of figures: one HTML file each, in one style, that needs nothing else."""
