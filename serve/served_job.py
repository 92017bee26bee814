"""The job of a served build folder, which may be started anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.session.prepare import PreparedRun

if TYPE_CHECKING:
    from rankslice.session.pipeline import Pipeline


@dataclass
class ServedJob:
    """The job of a build folder. Its methods block."""

    folder: Path
    """As the user named it: a link may lead elsewhere later."""
    start: Callable[[Path], Pipeline]
    """Starts the job of a folder, and does not wait until it is ready."""
    prepare: Callable[[Path], PreparedRun]
    """Checks a folder whose job is to be started, as far as that is possible beside another one."""
    pipeline: Pipeline | None = None

    def open(self) -> Pipeline:
        """Start the job, after the end of the one before.

        Raises:
            RankSliceError: it cannot be started.
        """
        if self.pipeline is not None:
            self.pipeline.close()
        self.pipeline = self.start(self.folder)
        return self.pipeline

    def check(self) -> None:
        """Check whether the folder can take the place of the one whose job runs.

        Raises:
            RankSliceError: it cannot be opened, or has another model.
        """
        prepared = self.prepare(self.folder)
        found = prepared.plan.job
        running = self.pipeline
        if running is None:
            return
        pairs: Sequence[tuple[str, object, object]] = (
            ("name", running.name, Path(found.model).stem),
            ("inputs", _shown(running.inputs), _shown(found.inputs)),
            ("outputs", _shown(running.outputs), _shown(found.outputs)),
        )
        for what, before, after in pairs:
            if before != after:
                mistake = f"the {what} of its model changed: {after}, before {before}"
                raise RankSliceError(Mistake(str(prepared.folder), mistake, "restart the server"))

    def abort(self) -> None:
        """End the job at once."""
        if self.pipeline is not None:
            self.pipeline.abort()


def _shown(specs: Sequence[Tensor]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs)
