"""What boards are like: a platform file from them, and whether they match one."""
