"""How ranks of one board share memory and hand over descriptors."""
