"""Several model files as one model."""
