"""A finished job to numbers a person can read."""
