"""A job of mpirun: its command, its end, and the message that explains a failure."""
