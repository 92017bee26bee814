"""Query boards, measure the network between them, and write a platform file."""
