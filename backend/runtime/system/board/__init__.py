"""A board's sensors, read again and again: temperatures, clocks, power and energy, GPUs."""
