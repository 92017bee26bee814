"""Mappings, searched for."""
