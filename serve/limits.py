"""What a server grants its clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on clients, besides those that follow from the models."""

    connections: int = 512
    """Most connections of HTTP, and most calls of gRPC at a time."""
    head_bytes: int = 32 * 1024
    """Of a request's headers."""
    patience_s: float = 10.0
    """How long a client may take for a request's headers, or to begin to read an answer."""
    slowest_bytes_per_s: float = 64 * 1024.0
    """At which a client must send and read, on average."""
    held_bytes: int = 256 * 1024 * 1024
    """Of all requests that are being read; one request is always let in."""

    def seconds_for(self, count: int) -> float:
        """Return how long a client may take for so many bytes."""
        return self.patience_s + count / self.slowest_bytes_per_s
