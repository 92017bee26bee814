"""What an exploration found: candidates, front, answer, and their files."""
