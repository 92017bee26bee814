"""What a model, its cuts and a mapping are like; what an engine runs of it."""
