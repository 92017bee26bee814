"""Show the layers of a model, their costs, useful cuts, and the effect of a mapping."""
