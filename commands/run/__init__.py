"""Run the slices as a pipeline and tell how fast, how steady, and what limits it."""
