"""A job's life: build, prepare, start, feed, drain, end, fail over, collect, measure."""
