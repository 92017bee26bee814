"""A job of a build folder: checked, then run here or across boards."""
