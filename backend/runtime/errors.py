"""How a job fails."""

from __future__ import annotations

import errno
import re
import signal


class JobError(Exception):
    """The job cannot go on; the message is complete and meant for the user."""


class BoundError(JobError):
    """A tensor is larger in a frame than its slots."""


class FrameError(JobError):
    """A frame has no results, but the next one can be computed; without skipping, the job ends."""


_OF_MEMORY = re.compile(r"bad_?alloc|allocate memory|failed to allocate|out of memory", re.I)


def is_of_memory(error: Exception) -> bool:
    """Tell whether memory is short: then the next frame may lack it, too."""
    return isinstance(error, MemoryError) or bool(_OF_MEMORY.search(str(error)))


class ElsewhereError(JobError):
    """The job cannot go on; another rank reports why and ends it, so this rank stays silent."""


class NeighbourDiedError(JobError):
    """A rank of the same board has died; its watchdog, if it has one, reports it."""


def reason_of(error: OSError) -> str:
    """Say why a file could not be written, and what to do about a full disk."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{error.strerror}; make room there" if is_full else str(error.strerror)


def what_is_wrong(error: Exception) -> str:
    """Describe an error of reading a damaged record."""
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return str(error) or type(error).__name__


def signal_name(number: int) -> str:
    """Name a signal; real-time signals relative to the first."""
    try:
        return signal.Signals(number).name
    except ValueError:
        offset = number - signal.SIGRTMIN
        return f"SIGRTMIN+{offset}" if offset > 0 else f"signal {number}"
