"""Show runs of build folders, or benchmarks, side by side, as one page."""
