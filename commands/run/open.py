"""``rankslice.open``: a job that a program feeds with frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.command import function
from rankslice.framework.option_records import offered
from rankslice.session.callbacks import Callbacks
from rankslice.session.fail_over import FailOver, Restart
from rankslice.session.pipeline import Pipeline, open_pipeline
from rankslice.session.shared_options import Launching, Surviving


@function
def open(
    folder: Path,
    *,
    options: Annotated[
        RunOptions,
        offered(
            *("window", "queue", "exact", "start_timeout_s", "frame_timeout_s"),
            queue={"help": "Maximum number of frames that wait besides (default: the window)."},
        ),
    ],
    launching: Launching,
    surviving: Annotated[Surviving, offered(survive={"excludes": ()})],
    on_restart: Callable[[Restart], None] = lambda restart: None,
    on_warning: Callable[[str], None] = lambda text: None,
    wait: bool = True,
) -> Pipeline:
    """Start the job of a build folder; return it when all ranks are ready for frame 0.

    ``on_restart`` is called when another job takes over, and ``on_warning``, in a thread, with
    which of the jobs that wait has failed, and why. Without ``wait`` the job is returned at once,
    and :meth:`Pipeline.wait_until_ready` waits.

    Example:
        >>> with rankslice.open("out") as pipeline:
        ...     result = pipeline(image)

    Raises:
        RankSliceError: the folder is no build folder, a board cannot run its package, or the job
            does not start.
    """
    return open_pipeline(
        folder,
        options,
        mpirun=launching.mpirun,
        ssh_config=launching.ssh_config,
        fail_over=fail_over_of(surviving),
        callbacks=Callbacks(on_restart=on_restart, on_warning=on_warning),
        wait=wait,
    )


def fail_over_of(surviving: Surviving) -> FailOver | None:
    """Return what takes over when a board is lost; ``None``: nothing."""
    return FailOver(_plan_afresh, surviving.standby) if surviving.survive else None


def _plan_afresh(folder: Path, lost: frozenset[str]) -> Path:
    """Build for the boards that are left."""
    # What builds is large to load, and a second loss is rare.
    from rankslice.session.building.plan_afresh import plan_afresh

    return plan_afresh(folder, lost)
