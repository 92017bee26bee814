"""What a program is told of a job while it runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from rankslice.backend.runtime.figures.sampling import OnSample
from rankslice.framework.errors import RankSliceError


@dataclass(frozen=True, slots=True)
class Callbacks:
    """All of them; those that are left out do nothing."""

    on_completed: Callable[[int], None] = lambda count: None
    """Now and then, the number of frames that have come out."""
    on_start: Callable[[subprocess.Popen[str]], None] = lambda mpirun: None
    """mpirun's process."""
    on_failure: Callable[[RankSliceError], None] | None = None
    """That the job has failed and why, as soon as that is known: a lost board delays its end."""
    on_sample: OnSample = lambda board, sample: None
    """Once a second, in threads, what each board and its ranks are like."""
    was_aborted: Callable[[], bool] = lambda: False
    """Asked whether the caller has ended the job: then it has not failed."""


NOBODY = Callbacks()
"""Nobody is told anything."""
