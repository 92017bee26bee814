"""``rankslice.open``: a job that a program feeds with frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.arguments import Count, Positive, checked, path_of
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.session.callbacks import Callbacks
from rankslice.session.fail_over import FailOver, Restart
from rankslice.session.pipeline import Pipeline, open_pipeline


@checked
def open(
    folder: str | Path,
    *,
    window: Count | None = None,
    queue: Count | None = None,
    exact: bool = False,
    start_timeout_s: Positive | None = None,
    frame_timeout_s: Positive | None = None,
    mpirun: str | Path | None = None,
    ssh_config: str | Path | None = None,
    survive: bool = False,
    standby: bool = False,
    on_restart: Callable[[Restart], None] = lambda restart: None,
    on_warning: Callable[[str], None] = lambda text: None,
    wait: bool = True,
) -> Pipeline:
    """Start the job of a build folder; return it when all ranks are ready for frame 0.

    Example:
        >>> with rankslice.open("out") as pipeline:
        ...     result = pipeline(image)

    Args:
        folder: made by ``build``. Packages are on their boards (``deploy``).
        window: most frames inside the pipeline; by default that of the plan.
        queue: how many frames may wait besides; as many as are inside by default.
        exact: engines run without graph optimisation.
        start_timeout_s: how long the ranks may take to start, in seconds; 120 by default.
        frame_timeout_s: how long a segment may take for a frame, in seconds; by default 30, or 20
            times the slowest one.
        mpirun: path of an mpirun; the one of this environment by default.
        ssh_config: handed to ssh as ``-F``.
        survive: go on without a board that is lost. The folder was built with ``--survive``.
        standby: also load the jobs that would take over, so that they do at once.
        on_restart: called when another job takes over.
        on_warning: told, in a thread, which of the jobs that wait has failed, and why.
        wait: otherwise it is returned at once, and :meth:`Pipeline.wait_until_ready` waits.

    Raises:
        RankSliceError: the folder is no build folder, a board cannot run its package, or the job
            does not start.
    """
    return open_pipeline(
        Path(folder),
        RunOptions(
            window=window,
            queue=queue,
            exact=exact,
            start_timeout_s=start_timeout_s,
            frame_timeout_s=frame_timeout_s,
        ),
        mpirun=path_of(mpirun),
        ssh_config=path_of(ssh_config),
        fail_over=fail_over_of(survive=survive, standby=standby),
        callbacks=Callbacks(on_restart=on_restart, on_warning=on_warning),
        wait=wait,
    )


def fail_over_of(*, survive: bool, standby: bool) -> FailOver | None:
    """Return how a job survives the loss of boards; ``None``: it does not.

    Raises:
        RankSliceError: jobs shall wait that nothing would start.
    """
    if standby and not survive:
        raise RankSliceError(Mistake("standby", "is of use only with survive", "set both"))
    return FailOver(_plan_afresh, standby) if survive else None


def _plan_afresh(folder: Path, lost: frozenset[str]) -> Path:
    # What builds is large to load, and a second loss is rare.
    from rankslice.commands.build.plan_afresh import plan_afresh

    return plan_afresh(folder, lost)
