"""What the measurements of a job's ranks mean: rate, latency, bottleneck."""
