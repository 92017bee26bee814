"""How a job fails."""

from __future__ import annotations

import errno

__all__ = ["ElsewhereError", "JobError", "reason_of"]


class JobError(Exception):
    """The job cannot go on; the message is complete and meant for a person."""


class ElsewhereError(JobError):
    """The job cannot go on, and another rank says so and ends it: this one keeps silent."""


def reason_of(error: OSError) -> str:
    """Return why a file could not be written, and what to do about a full disk."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{error.strerror}; make room there" if is_full else str(error.strerror)
