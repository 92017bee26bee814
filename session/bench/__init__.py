"""Starts of a job that are measured, alone or beside a co-runner."""
