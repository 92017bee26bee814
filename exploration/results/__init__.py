"""What an exploration found, and how it is kept and shown."""
