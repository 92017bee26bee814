"""Threads that run stages whenever one is ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from ..figures.events import THREADS, WAIT, EventRing
from .direct_channels import NEWS, Post
from .loop import CommunicationLoop
from .stages import Stage
from .waiting import ArrivalPredictor, Waiter, Watched, sharpen_timers

_SHORT_STEP_S = 200e-6
"""After a shorter step a poll pays off only if the step made something to send. What came during a
longer step is taken before a wait begins, as it says nothing about waits."""


def step_of(stage: Stage) -> str:
    """Name a stage and its frame: ``segment 1, frame 17``, or ``segment 1, frame 17 of surge``."""
    before, after = _around_frame(stage)
    return f"{before}{stage.frame}{after}"


def _around_frame(stage: Stage) -> tuple[str, str]:
    return f"{stage.describe()}, frame ", f" of {stage.route}" if stage.route else ""


OnStep = Callable[[int, bytes], object]
"""Called before each step: the frame, and what stands before and after its number in the step's
name, a zero byte in between."""


class Executor:
    """A thread that owns some stages and always runs the ready one with the oldest frame.

    It never blocks on a particular stage: it passes over what is not ready. Running the oldest
    frame first keeps latency low, and the oldest frame in the pipeline always advances.
    """

    def __init__(
        self,
        name: str,
        stages: Sequence[Stage],
        *,
        on_failure: Callable[[Stage | None, BaseException], None],
        on_finished: Callable[[], None] = lambda: None,
        on_step: OnStep | None = None,
        post: Post | None = None,
        predicts: bool = False,
        events: EventRing | None = None,
        beside: Executor | None = None,
    ) -> None:
        """Prepare the thread.

        Of its ``stages`` earlier ones come first among equals. ``on_failure`` gets the stage and
        the exception that ended the thread. ``predicts``: wake a little before frames are due, and
        wait for them without sleep. ``events`` takes its steps and waits. ``beside``: another
        thread of the same core, for whose waits this one's work does not count.
        """
        self.name = name
        self._add_event = (events or EventRing()).add
        self._number = THREADS.index(name)
        self._beside = beside
        self._stages = sorted(stages, key=lambda stage: stage.precedence)
        self._clocked = [stage for stage in stages if stage.is_clocked]
        self._names = {s: "\0".join(_around_frame(s)).encode() for s in stages}
        self._on_failure = on_failure
        self._on_finished = on_finished
        self._on_step = on_step
        self._run_step = self._step if beside is None else partial(self._step_beside, beside)
        self._outbox = post.outbox if post is not None else None
        inboxes = post.inboxes if post is not None else {}
        self._news = inboxes.get(NEWS)
        self._room: dict[str, Watched] = {
            lacked: (inbox.descriptor, inbox.take) for lacked, inbox in inboxes.items()
        }
        """By what stages may lack."""
        self._lacked: list[Watched] = []
        """What tells of that which stages lack, to be watched besides the news."""
        self._predictor: ArrivalPredictor | None = None
        self._waiter = Waiter()
        if self._news is not None:
            self._waiter.watch(self._news.descriptor, self._news.take)
            if predicts:
                self._predictor = ArrivalPredictor()
                self._news.on_stamp = self._predictor.note
        self._messages: CommunicationLoop | None = None
        self._stopped = False
        self._should_poll = False
        self._asked: Stage | None = None
        self._at: Stage | None = None
        self._steps = 0
        self._ident: int | None = None
        self.is_waiting = False
        self.step_s = 0.0
        """How long the stage that runs, or that ran last, took for its last frame, in seconds."""
        self.step_under_way: int | None = None
        """Number of the step that runs now; ``None`` while the thread waits."""
        self.slowest_s = 0.0
        self._waits: tuple[float, float | None] = 0.0, None
        """Time without a ready stage, in seconds, and when the present wait began."""
        self._worked_meanwhile_s = 0.0
        """Work that another thread of this one's core did while this one waited, in seconds."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def at(self) -> str:
        return step_of(self._at) if self._at is not None else ""

    @property
    def finished(self) -> bool:
        return not self._stages

    @property
    def waited_s(self) -> float:
        return max(0.0, self._waits[0] - self._worked_meanwhile_s)

    def _waited_until(self, now_s: float) -> float:
        waited_s, begun_s = self._waits
        return waited_s if begun_s is None else waited_s + now_s - begun_s

    def start(self, messages: CommunicationLoop | None = None) -> None:
        """Start the thread.

        It polls ``messages`` while it waits, after each step that was long, and between two
        steps if the first made something to send.
        """
        self._messages = messages
        self._thread.start()

    def is_current(self) -> bool:
        return threading.get_ident() == self._ident

    def wake(self) -> None:
        """Wake the thread: a stage may have become ready.

        What its own steps and polls make ready it finds without being woken.
        """
        if threading.get_ident() != self._ident:
            self._waiter.set()

    def poll_soon(self) -> None:
        """Have the thread poll the messages after its present step; called by itself."""
        self._should_poll = True

    def stop(self) -> None:
        self._stopped = True
        self._waiter.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        sharpen_timers()
        self._ident = threading.get_ident()
        try:
            while self._stages and not self._stopped:
                if self._messages is not None and self.step_s > _SHORT_STEP_S:
                    self._poll()
                stage = self._next_ready()
                if stage is None:
                    stage = self._wait()
                elif self._should_poll and self._poll():
                    stage = self._next_ready()
                if stage is not None and not self._stopped:
                    self._run_step(stage)
            self._on_finished()
        except BaseException as error:
            self._on_failure(self._asked, error)

    def _step(self, stage: Stage) -> None:
        frame = stage.frame
        self._asked = self._at = stage
        if self._on_step is not None:
            self._on_step(frame, self._names[stage])
        self.step_s = stage.took_s
        if self._messages is not None:
            self._messages.begin_step(self.step_s)
        self._steps += 1
        self.step_under_way = self._steps
        begin = time.perf_counter()
        stage.step()
        if self._outbox is not None and self._outbox.pending:
            self._outbox.flush()
        end = time.perf_counter()
        stage.took_s = self.step_s = passed = end - begin
        if passed > self.slowest_s:
            self.slowest_s = passed
        self.step_under_way = None
        if stage.finished:
            self._stages.remove(stage)
        else:
            self._add_event(stage.kind, begin, end, frame, stage.index, self._number, stage.way)

    def _step_beside(self, beside: Executor, stage: Stage) -> None:
        work_s, waited_s = time.thread_time(), beside._waited_until(time.perf_counter())
        self._step(stage)
        work_s = time.thread_time() - work_s
        overlap_s = beside._waited_until(time.perf_counter()) - waited_s
        beside._worked_meanwhile_s += min(work_s, overlap_s)

    def _next_ready(self, *, takes_tokens: bool = True) -> Stage | None:
        """Take the tokens that have come; return the ready stage with the oldest frame."""
        oldest: Stage | None = None
        news = self._news if takes_tokens else None
        for stage in self._stages:
            if oldest is not None and stage.precedence > oldest.precedence:
                break
            if news is not None and stage.precedence:  # no frame is older than one of the sink
                if news.take():
                    return self._next_ready(takes_tokens=False)
                news = None
            self._asked = stage
            if stage.is_ready() and (oldest is None or stage.frame < oldest.frame):
                oldest = stage
        if oldest is not None:
            return oldest
        self._lacked = []
        for stage in self._stages:
            if stage.lacks in self._room:
                self._lacked.append(self._room[stage.lacks])
        if takes_tokens:
            has_come = news is not None and news.take()
            for _, take in self._lacked:
                has_come = has_come or bool(take())
            if has_come:
                return self._next_ready(takes_tokens=False)
        # A step sends what it adds; before a sleep there may be that credits have been taken.
        if self._outbox is not None and self._outbox.pending:
            self._outbox.flush()
        return None

    def _poll(self) -> bool:
        if self._messages is None:
            return False
        self._asked = None
        self._should_poll = False
        return self._messages.poll()

    def _wait(self) -> Stage | None:
        begin, waited_s = time.perf_counter(), self._waits[0]
        self._waits = waited_s, begin
        self.is_waiting = True
        if self._messages is not None:
            self._messages.begin_wait()
        stage = None
        while stage is None and not self._stopped:
            if self._messages is not None:
                moved = self._poll()
                # A poll may make a stage ready though it moved no message.
                stage = self._next_ready()
                if moved or stage is not None:
                    continue
            pause_s = self._pause_s() if self._clocked or self._messages is not None else None
            if self._predictor is None:
                self._waiter.wait(pause_s, self._lacked)
            else:
                self._sleep_lightly(self._predictor, pause_s)
            stage = self._next_ready(takes_tokens=False)
        self.is_waiting = False
        if self._messages is not None:
            self._messages.end_wait()
        end = time.perf_counter()
        self._waits = waited_s + end - begin, None
        if stage is not None:
            self._add_event(WAIT, begin, end, stage.frame, stage.index, self._number, stage.way)
        return stage

    def _sleep_lightly(self, predictor: ArrivalPredictor, pause_s: float | None) -> None:
        """Sleep until something may have become ready, but be awake when a frame is due."""
        early_s = predictor.sleep_s()
        if early_s is None or (pause_s is not None and pause_s < early_s):
            self._waiter.wait(pause_s, self._lacked)
            return
        if early_s:
            if self._waiter.wait(early_s, self._lacked):
                return
            predictor.note_wake()
        # All that follows a token runs now, too, so that it is in the caches when one comes.
        while predictor.stays_awake() and not self._stopped:
            if self._next_ready() is not None:
                return

    def _pause_s(self) -> float | None:
        pause_s = self._messages.pause_s() if self._messages is not None else None
        for stage in self._clocked:
            until_s = stage.pause_s()
            if until_s is not None and (pause_s is None or until_s < pause_s):
                pause_s = until_s
        return pause_s
