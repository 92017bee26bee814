"""Model formats: each read into a graph, and sliced."""
