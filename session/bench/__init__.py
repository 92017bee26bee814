"""Starts of a job that are measured: alone, beside a co-runner, or under a scenario."""
