"""Records and specs that every room shares, and the command line."""
