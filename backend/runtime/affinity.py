"""The cores a rank may use: set, and then checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .errors import JobError


def bind_to_cores(cores: Sequence[int]) -> None:
    """Restrict all present and future threads of this process to ``cores``.

    This replaces what mpirun has set, which may be no binding at all.

    Raises:
        JobError: this machine lacks these cores, or forbids their use.
    """
    for thread in _threads():
        try:
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            continue
        except OSError:
            usable = sorted(os.sched_getaffinity(os.getppid()))
            raise JobError(
                f"cores {list(cores)} cannot be used on this board; its cores are"
                f" 0-{(os.cpu_count() or 1) - 1}, of which {usable} may be used"
            ) from None
    check_binding(cores)


def check_binding(cores: Sequence[int]) -> None:
    """Raise :class:`JobError` if any thread of this process may run outside ``cores``."""
    allowed = set(cores)
    for thread in _threads():
        try:
            actual = os.sched_getaffinity(thread)
        except ProcessLookupError:
            continue
        if not actual <= allowed:
            raise JobError(
                f"a thread runs on cores {sorted(actual)}, outside the rank's {sorted(allowed)}"
            )


def _threads() -> list[int]:
    return [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
