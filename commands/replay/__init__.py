"""Run one rank alone on the tensors of a recorded run, and compare its outputs."""
