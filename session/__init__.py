"""A job's life: prepare, start, feed, drain, end, fail over, collect."""
