"""Measured times and memory of layers and slices on the accelerators of a platform."""
