"""Threads that run stages whenever one is ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from .wakeup import Wakeup

__all__ = ["Executor", "Stage", "step_of"]


class Stage(Protocol):
    """Work that is done once per frame, when its inputs are there and its outputs have room."""

    frame: int
    """The frame it works on next."""
    finished: bool

    def is_ready(self) -> bool:
        """Whether :meth:`step` would work without waiting for anyone."""

    def step(self) -> None:
        """Do one frame, or notice that the stream is over."""

    def pause_s(self) -> float | None:
        """Seconds after which :meth:`is_ready` can change by itself; ``None``: never."""

    def describe(self) -> str:
        """Name the stage, for messages: ``segment 1``."""


def step_of(stage: Stage) -> str:
    """Name a stage and its frame: ``segment 1, frame 17``."""
    return f"{stage.describe()}, frame {stage.frame}"


class Executor:
    """A thread that owns some stages and always runs the ready one with the oldest frame.

    It never blocks on a particular stage: what is not ready is passed over. The oldest frame
    first keeps latency low, and lets the oldest frame in the pipeline always advance.
    """

    def __init__(
        self,
        name: str,
        stages: Sequence[Stage],
        *,
        on_failure: Callable[[Stage | None, BaseException], None],
        on_finished: Callable[[], None] = lambda: None,
        on_idle: Callable[[], None] = lambda: None,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare the thread.

        Args:
            name: name of the thread.
            stages: its stages, earlier ones first among equals.
            on_failure: called with the stage and the exception that ended the thread.
            on_finished: called when all stages have come to their end.
            on_idle: called before the thread waits.
            on_step: called with the name of each step before it.
        """
        self.name = name
        self._stages = list(stages)
        self._on_failure = on_failure
        self._on_finished = on_finished
        self._on_idle = on_idle
        self._on_step = on_step
        self._wakeup = Wakeup()
        self._stopped = False
        self._asked: Stage | None = None
        self._at: Stage | None = None
        self._last_s: dict[Stage, float] = {}
        self._steps = 0
        self.step_under_way: int | None = None
        """Number of the step that runs now; ``None`` while the thread waits."""
        self.slowest_s = 0.0
        """Time of the slowest step so far, in seconds."""
        self.waited_s = 0.0
        """Time without a ready stage, in seconds."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def at(self) -> str:
        """The step that runs, or that ran last."""
        return step_of(self._at) if self._at is not None else ""

    @property
    def step_s(self) -> float | None:
        """How long the stage that runs now took for its last frame, in seconds.

        ``None`` while the thread waits.
        """
        stage = self._at
        if stage is None or self.step_under_way is None:
            return None
        return self._last_s.get(stage, 0.0)

    @property
    def finished(self) -> bool:
        """Whether all stages have come to their end."""
        return not self._stages

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Let the thread look again: a stage may have become ready.

        What its own steps make ready it finds without being woken.
        """
        if threading.get_ident() != self._thread.ident:
            self._wakeup.set()

    def stop(self) -> None:
        """End the thread after the step it is in."""
        self._stopped = True
        self._wakeup.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while self._stages and not self._stopped:
                stage = self._next_ready()
                if stage is None:
                    self._wait()
                    continue
                self._run_step(stage)
                if stage.finished:
                    self._stages.remove(stage)
            self._on_finished()
        except BaseException as error:
            self._on_failure(self._asked, error)

    def _run_step(self, stage: Stage) -> None:
        self._asked = self._at = stage
        if self._on_step is not None:
            self._on_step(step_of(stage))
        self._steps += 1
        self.step_under_way = self._steps
        begin = time.perf_counter()
        stage.step()
        self._last_s[stage] = passed = time.perf_counter() - begin
        self.slowest_s = max(self.slowest_s, passed)
        self.step_under_way = None

    def _next_ready(self) -> Stage | None:
        oldest: Stage | None = None
        for stage in self._stages:
            self._asked = stage
            if stage.is_ready() and (oldest is None or stage.frame < oldest.frame):
                oldest = stage
        return oldest

    def _wait(self) -> None:
        pauses = [p for p in (stage.pause_s() for stage in self._stages) if p is not None]
        self._on_idle()
        begin = time.perf_counter()
        self._wakeup.wait(min(pauses, default=None))
        self.waited_s += time.perf_counter() - begin
