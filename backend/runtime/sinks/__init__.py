"""Where results go: one file per kind of sink, found by its name.

A file ``NAME_sink.py`` in this folder defines a :class:`Sink` and calls it ``SINK``. Nothing else
lists the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from numpy.typing import NDArray

from ..discovery import find_kinds
from ..frame_records import Failure
from ..job import Job
from ..options import RunOptions


class Sink(ABC):
    """A receiver of the model's outputs, on the rank where they leave."""

    is_last: ClassVar[bool] = False
    """Whether it gets each frame after the other sinks."""

    waited_s: float = 0.0
    """Seconds that :meth:`write` has waited for whoever takes the results from it, in all."""

    @classmethod
    @abstractmethod
    def open(cls, job: Job, options: RunOptions) -> Sink | None:
        """Return the sink, ready for frame 0; ``None``: the options do not ask for it.

        Raises:
            JobError: it cannot be opened.
        """

    @abstractmethod
    def write(self, frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        """Take the outputs of one frame; frames come in order. The arrays are reused afterwards.

        Raises:
            JobError: it cannot take them.
        """

    def fail(self, frame: int, failure: Failure) -> None:  # noqa: B027 - most leave it out
        """Take note that a frame has failed, in the place of its outputs."""

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """Take note that no further frame comes; not called if the job fails."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Release what was opened, whether or not the job failed."""


def open_sinks(job: Job, options: RunOptions, resources: ExitStack) -> list[Sink]:
    """Return all sinks that the options ask for; ``resources`` closes them.

    Raises:
        JobError: one of them cannot be opened.
    """
    sinks = []
    for kind in sorted(find_kinds(__name__, "sink"), key=lambda kind: kind.is_last):
        sink = kind.open(job, options)
        if sink is not None:
            resources.callback(sink.close)
            sinks.append(sink)
    return sinks
