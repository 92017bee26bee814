"""What a rank is made of: slots, stages, threads, and the loop that moves messages."""
