"""Predict rate, latency and queues of a job without its boards, event by event."""
