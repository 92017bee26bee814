"""A model, a platform and measured times as numbers."""
