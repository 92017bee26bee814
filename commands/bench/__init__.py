"""Measure a job: rates, latencies and their confidence, compared with another one."""
