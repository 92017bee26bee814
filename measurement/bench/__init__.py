"""Statistics of repeated runs: latencies, warm-up, intervals, comparisons."""
