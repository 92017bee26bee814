"""What is kept of runs, and how they are shown side by side."""
