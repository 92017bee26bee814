"""How faults are found, and how a job ends."""
