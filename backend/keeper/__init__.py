"""Frames of a job that a program feeds: kept until their results are there."""
