"""Run the slices as a pipeline; report throughput, latency and the bottleneck."""
