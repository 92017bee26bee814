"""What a rank measures of itself and of its board."""
