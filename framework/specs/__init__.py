"""Mapping and platform files: read, checked, and understood together."""
