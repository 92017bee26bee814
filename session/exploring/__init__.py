"""Runs and simulations of the mappings that an exploration finds."""
