"""The keeper: hands frames to a job, takes its results, and keeps each frame until its result."""
