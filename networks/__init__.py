"""Networks for the demo, tests and benchmarks: generated and calibrated."""
