"""What each rank of a job did, event by event."""
