"""What a rank's process needs before it runs: its environment variables and its cores."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from .errors import JobError
from .system.cores import CORES
from .system.files import ROOT, text_of
from .system.processes import threads_of

_MAX_CORES = 1 << 13
"""More than Linux can have."""


def start_again_with(variables: dict[str, str]) -> None:
    """Restart this program if variables are missing: the system reads some at its start only."""
    wanted = {name: _value(name, value) for name, value in variables.items()}
    if wanted.items() <= os.environ.items():
        return
    os.environ.update(wanted)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _value(name: str, value: str) -> str:
    """Put the value in front of other folders with libraries, if the variable names such."""
    present = os.environ.get(name, "")
    if name != "LD_LIBRARY_PATH" or not present or present == value:
        return value
    # The present value may lead to the MPI library.
    return present if present.startswith(f"{value}:") else f"{value}:{present}"


def bind_to_cores(cores: Sequence[int]) -> None:
    """Restrict all present and future threads of this process to ``cores``.

    The numbers are the kernel's. This replaces what mpirun has set, which may be no binding at all.

    Raises:
        JobError: this machine lacks one of these cores, or forbids its use.
    """
    before = os.sched_getaffinity(0)
    if _bound(0, cores) != set(cores):
        usable = sorted(_bound(0, range(_MAX_CORES)))
        os.sched_setaffinity(0, before)
        lacking = sorted(set(cores).difference(usable))
        named = f"core{'s' * (len(usable) > 1)} {', '.join(map(str, usable))}"
        raise JobError(
            f"{', '.join(map(_what_hinders, lacking))}; the process may use {named}: name"
            " these in the mapping, or give it more (cpuset of its container, allocation)"
        )
    for thread in threads_of("self"):
        with contextlib.suppress(ProcessLookupError):
            _bound(thread, cores)
    check_binding(cores)


def _bound(thread: int, cores: Sequence[int]) -> set[int]:
    """Bind a thread, and return the cores that it has then: the kernel leaves out some in silence.

    Raises:
        ProcessLookupError: it has ended.
    """
    try:
        os.sched_setaffinity(thread, cores)
    except ProcessLookupError:
        raise
    except (OSError, ValueError, OverflowError):  # none of them can be used
        return set()
    return os.sched_getaffinity(thread)


def _what_hinders(core: int) -> str:
    folder = ROOT / CORES / f"cpu{core}"
    if not folder.exists():
        return f"this board has no core {core}"
    if text_of(folder / "online") == "0":  # one that cannot be switched off has no such file
        return f"core {core} is offline"
    return f"core {core} is not allowed to this process"


def check_binding(cores: Sequence[int]) -> None:
    """Raise :class:`JobError` if any thread of this process may run outside ``cores``."""
    allowed = set(cores)
    for thread in threads_of("self"):
        try:
            actual = os.sched_getaffinity(thread)
        except ProcessLookupError:
            continue
        if not actual <= allowed:
            raise JobError(
                f"a thread runs on cores {sorted(actual)}, outside the rank's {sorted(allowed)}"
            )
