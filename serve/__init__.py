"""The inference service: its protocol, queues and batches, in front of a session."""
