"""Slice a model: write sub-models, a driver and a package for each board."""
