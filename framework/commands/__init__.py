"""One library call per command: the only code that knows all rooms."""
