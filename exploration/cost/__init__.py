"""What a mapping costs, by computation."""
