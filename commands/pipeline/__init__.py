"""A job that a program feeds with frames: ``rankslice.open``."""
