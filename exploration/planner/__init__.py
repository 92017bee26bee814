"""The parts of the exact planner."""
