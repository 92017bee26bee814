"""Measure how long layers and slices take on the accelerators of a platform."""
