"""The Open Inference Protocol, version 2: requests and answers as bytes and as arrays."""
