"""Show the last runs of several build folders side by side, as one page."""
