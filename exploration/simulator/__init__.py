"""A job, simulated event by event."""
