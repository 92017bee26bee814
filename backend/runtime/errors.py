"""The one way a job fails."""

from __future__ import annotations

__all__ = ["JobError"]


class JobError(Exception):
    """The job cannot go on; the message is complete and meant for a person."""
