"""Predict throughput, latency and queues of a job without its boards."""
