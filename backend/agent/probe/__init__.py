"""Describes a board, and measures the network between boards."""
