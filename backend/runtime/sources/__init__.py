"""Where frames come from, and when."""
