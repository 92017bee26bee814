"""Measure how long layers and slices take on each kind of accelerator of each kind of board."""
