"""How a job fails."""

from __future__ import annotations

__all__ = ["ElsewhereError", "JobError"]


class JobError(Exception):
    """The job cannot go on; the message is complete and meant for a person."""


class ElsewhereError(JobError):
    """The job cannot go on, and another rank says so and ends it: this one keeps silent."""
