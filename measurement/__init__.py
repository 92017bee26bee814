"""The figures of a finished run, and their comparison."""
