"""Layers of ranks, put into as few segments as possible."""
