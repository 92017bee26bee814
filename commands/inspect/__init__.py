"""Show a model's layers, what they cost, where it can be cut, and what a mapping gives."""
