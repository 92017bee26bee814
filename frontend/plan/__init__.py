"""The plan, and the tables and rankfile that are written of it."""
