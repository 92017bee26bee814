"""How messages travel between ranks."""
