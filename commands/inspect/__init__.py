"""Show the layers of a model, their costs, where to cut it, and what a mapping does."""
