"""Measure a job: rates and latencies with confidence intervals, compared with another job."""
