"""Networks for tests and benchmarks: downloaded, made and calibrated."""
