"""What layers cost: operations, memory, messages."""
