"""What a caller learns of a job: callbacks while it runs, and the finished run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rankslice.backend.runtime.figures.sampling import OnSample
from rankslice.backend.runtime.keeper import Entered
from rankslice.framework.errors import RankSliceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankslice.backend.runtime.figures.operator_profile import RankOperators
    from rankslice.backend.runtime.sinks.results import Results
    from rankslice.measurement.accuracy import Accuracy
    from rankslice.measurement.board_history import BoardHistory
    from rankslice.measurement.summary import RunSummary
    from rankslice.measurement.trace.trace_events import Trace
    from rankslice.session.fail_over import Restart
    from rankslice.session.prepare import PreparedRun

OnResult: TypeAlias = Callable[[int, "Sequence[NDArray[Any]] | str"], None]
"""Takes the number of a frame and its outputs, or why it has failed. While it works, no further
result is received, so that the job waits for it.

Raises:
    RankSliceError: it cannot take them; the job ends.
"""

OnEnter: TypeAlias = Callable[[Entered | None], None]
"""Takes what is known of a frame that enters; ``None``: no further one does."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    summary: RunSummary
    """If another job took over, its ranks, energy and hardware are those of the last job."""
    results: Results
    labels: tuple[str, ...]
    """What each frame was: the name of its file, say."""
    arrivals: tuple[int, ...] = ()
    """The number under which the source has each frame."""
    drained_by: str = ""
    """Name of the signal that ended the stream; empty: it ended by itself."""
    trace: Trace | None = None
    """What the ranks did, if the options say ``events``."""
    hardware: tuple[BoardHistory, ...] = ()
    """What each board was like, second by second."""
    operators: tuple[RankOperators, ...] = ()
    """When operators ran, by rank, if the options say ``operators``, too."""
    restarts: tuple[Restart, ...] = ()
    job: PreparedRun | None = None
    """The run; folder and plan are those of the last job."""
    accuracy: Accuracy | None = None
    """``None``: no truth was given."""


def _ignore(*arguments: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Callbacks:
    """All of them; those that are left out do nothing."""

    on_completed: Callable[[int], None] = _ignore
    """From time to time, the number of frames that have come out."""
    on_sample: OnSample = _ignore
    """Once a second, in threads, a sample of each board and its ranks."""
    on_start: Callable[[subprocess.Popen[str]], None] = _ignore
    on_failure: Callable[[RankSliceError], None] | None = None
    """The job's error, as soon as it is known: a lost board delays the end of the job."""
    was_aborted: Callable[[], bool] = lambda: False
    """Asked whether the caller has ended the job: then it has not failed."""
    on_result: OnResult | None = None
    """Results as they come, in a thread; the options say ``stream``."""
    on_enter: OnEnter = _ignore
    """What is known of each frame that enters, in a thread; the options say ``announce``."""
    on_drain: Callable[[str], None] = _ignore
    """The name of the signal at which no further frames enter. So the first SIGINT or SIGTERM acts
    where the number of frames is unknown."""
    on_restart: Callable[[Restart], None] = _ignore
    """That another job takes over."""
    on_warning: Callable[[str], None] = _ignore
    """In a thread, which of the jobs that wait has failed, and why."""
    on_ran: Callable[[FinishedRun], None] = _ignore
    """The finished run, before any comparison."""
    on_verified: Callable[[int], None] = _ignore
    """From time to time, the number of frames compared with the unsliced model."""
    on_search: Callable[[], None] = _ignore
    """That a frame is run again, to find the first tensor that differs."""


NO_CALLBACKS = Callbacks()
