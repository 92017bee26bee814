"""Threads that run stages whenever one is ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..direct.foretelling import Foretelling
from ..figures.events import THREADS, WAIT, EventRing
from .waiting import Waiter, Watched, sharpen_timers

_SHORT_STEP_S = 200e-6
"""After a shorter step a look pays off only if the step made something to send. What came during a
longer step is taken before a wait begins, as it says nothing about waits."""


class Stage(Protocol):
    """Work that is done once per frame, when its inputs are there and its outputs have room."""

    frame: int
    """The frame it works on next."""
    finished: bool
    route: str
    """The route whose frames it counts; empty: it counts all."""
    way: int
    """Number of the route of the frame that it has done last; 0 if it does not know."""
    precedence: int
    """Of ready stages that with the lowest one runs first: the sink's is 0, that of segments 1, the
    source's 2. What a sink takes is older than what a segment computes, whatever both count."""
    kind: int
    """Of the events that its steps are."""
    index: int
    """Of a segment, among those of its rank and route."""

    def is_ready(self) -> bool:
        """Whether :meth:`step` would work without waiting for anyone."""

    def step(self) -> None:
        """Do one frame, or notice that the stream is over."""

    def lacks_room(self) -> bool:
        """Whether :meth:`is_ready` may change once others are done with older frames."""

    def pause_s(self) -> float | None:
        """Seconds after which :meth:`is_ready` can change by itself; ``None``: never."""

    def describe(self) -> str:
        """Name the stage, for messages: ``segment 1``."""


class Inbox(Protocol):
    """What other ranks of the board tell the thread."""

    descriptor: int
    """Can be read when something has come."""

    on_stamp: Callable[[int, int], None] | None
    """Called with the channel of a frame and the time when it was sent, in nanoseconds."""

    @property
    def is_used(self) -> bool:
        """Whether anything may come."""

    def take(self) -> bool:
        """Take what has come; return whether there was anything."""


class Post(Protocol):
    """How a thread exchanges tokens with other ranks of its board."""

    @property
    def news(self) -> Inbox:
        """Tells of frames."""

    @property
    def room(self) -> Inbox:
        """Tells of room for frames: looked at only if a stage lacks it."""

    def flush(self) -> None:
        """Send what the thread's steps have to tell."""


class Messages(Protocol):
    """The messages of a rank, which a thread polls between its steps."""

    def look(self) -> bool:
        """Move what can be moved; return whether there was anything."""

    def begin_step(self, step_s: float) -> None:
        """Note that a step begins that may take ``step_s`` seconds."""

    def begin_wait(self) -> None:
        """Note that no stage is ready; a look follows."""

    def pause_s(self) -> float:
        """Return the seconds to sleep between two looks that found nothing."""

    def end_wait(self) -> None:
        """Note that a stage is ready again."""


def _nothing() -> None:
    """Have no tokens to send."""


def _age(stage: Stage) -> tuple[int, int]:
    """Return what orders stages by the age of their frames: the oldest is the least."""
    return stage.precedence, stage.frame


def step_of(stage: Stage) -> str:
    """Name a stage and its frame: ``segment 1, frame 17``, or ``segment 1, frame 17 of surge``."""
    of_route = f" of {stage.route}" if stage.route else ""
    return f"{stage.describe()}, frame {stage.frame}{of_route}"


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
        on_step: Callable[[str], None] | None = None,
        posts: Sequence[Post] = (),
        foretells: bool = False,
        events: EventRing | None = None,
        beside: Executor | None = None,
    ) -> None:
        """Prepare the thread.

        Args:
            name: name of the thread.
            stages: its stages, earlier ones first among equals.
            on_failure: called with the stage and the exception that ended the thread.
            on_finished: called when all stages have come to their end.
            on_step: called with the name of each step before it.
            posts: the inboxes that the thread watches; those of several threads if it does the
                work of several.
            foretells: wake a little before frames are due, and wait for them without sleep.
            events: takes its steps and waits.
            beside: another thread of the same core, for whose waits this one's work does not count.
        """
        self.name = name
        self._events = events or EventRing()
        self._number = THREADS.index(name)
        self._beside = beside
        self._stages = list(stages)
        self._on_failure = on_failure
        self._on_finished = on_finished
        self._on_step = on_step
        self._flush = posts[0].flush if posts else _nothing
        self._news = [post.news for post in posts if post.news.is_used]
        self._room = [post.room for post in posts if post.room.is_used]
        self._foretelling = Foretelling() if foretells and self._news else None
        if self._foretelling is not None:
            for inbox in self._news:
                inbox.on_stamp = self._foretelling.note
        self._waiter = Waiter()
        for inbox in self._news:
            self._waiter.watch(inbox.descriptor, inbox.take)
        self._watched_room: list[Watched] = [(each.descriptor, each.take) for each in self._room]
        self._messages: Messages | None = None
        self._stopped = False
        self._should_look = False
        self._asked: Stage | None = None
        self._at: Stage | None = None
        self._last_s: dict[Stage, float] = {}
        self._steps = 0
        self.is_waiting = False
        """Whether no stage is ready."""
        self.step_under_way: int | None = None
        """Number of the step that runs now; ``None`` while the thread waits."""
        self.slowest_s = 0.0
        """Time of the slowest step so far, in seconds."""
        self._waits: tuple[float, float | None] = 0.0, None
        """Time without a ready stage, in seconds, and when the present wait began."""
        self._worked_meanwhile_s = 0.0
        """Work that another thread of this one's core did while this one waited, in seconds."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def at(self) -> str:
        """The step that runs, or that ran last."""
        return step_of(self._at) if self._at is not None else ""

    @property
    def step_s(self) -> float:
        """How long the stage that runs, or that ran last, took for its last frame, in seconds."""
        return self._last_s.get(self._at, 0.0) if self._at is not None else 0.0

    @property
    def finished(self) -> bool:
        """Whether all stages have come to their end."""
        return not self._stages

    @property
    def waited_s(self) -> float:
        """Time in which there was nothing to do, in seconds."""
        return max(0.0, self._waits[0] - self._worked_meanwhile_s)

    def _waited_until(self, now_s: float) -> float:
        """Return the time without a ready stage so far; any thread may ask."""
        waited_s, begun_s = self._waits
        return waited_s if begun_s is None else waited_s + now_s - begun_s

    def start(self, messages: Messages | None = None) -> None:
        """Start the thread.

        It looks at ``messages`` while it waits, after each step that was long, and between two
        steps if the first made something to send.
        """
        self._messages = messages
        self._thread.start()

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.get_ident() == self._thread.ident

    def wake(self) -> None:
        """Let the thread look again: a stage may have become ready.

        What its own steps and looks make ready it finds without being woken.
        """
        if not self.is_current():
            self._waiter.set()

    def look_soon(self) -> None:
        """Let the thread look at the messages after the step that it is in; called by itself."""
        self._should_look = True

    def stop(self) -> None:
        """End the thread after the step it is in."""
        self._stopped = True
        self._waiter.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        sharpen_timers()
        try:
            while self._stages and not self._stopped:
                if self.step_s > _SHORT_STEP_S:
                    self._look()
                stage = self._next_ready()
                if stage is None:
                    stage = self._wait()
                elif self._should_look and self._look():
                    stage = self._next_ready()
                if stage is not None and not self._stopped:
                    self._run_step(stage)
            self._on_finished()
        except BaseException as error:
            self._on_failure(self._asked, error)

    def _run_step(self, stage: Stage) -> None:
        self._asked = self._at = stage
        if self._on_step is not None:
            self._on_step(step_of(stage))
        self._steps += 1
        if self._messages is not None:
            self._messages.begin_step(self._last_s.get(stage, 0.0))
        self.step_under_way = self._steps
        frame, beside = stage.frame, self._beside
        begin = time.perf_counter()
        before_s = (time.thread_time(), beside._waited_until(begin)) if beside else (0.0, 0.0)
        stage.step()
        self._flush()
        end = time.perf_counter()
        if beside is not None:
            work_s, overlap_s = time.thread_time(), beside._waited_until(end)
            beside._worked_meanwhile_s += min(work_s - before_s[0], overlap_s - before_s[1])
        self._last_s[stage] = passed = end - begin
        self.slowest_s = max(self.slowest_s, passed)
        self.step_under_way = None
        if stage.finished:
            self._stages.remove(stage)
        else:
            self._note(stage.kind, begin, end, stage, frame)

    def _note(self, kind: int, begin_s: float, end_s: float, stage: Stage, frame: int) -> None:
        number, thread, way = stage.index, self._number, stage.way
        self._events.add(kind, begin_s, end_s, frame, number, thread=thread, route=way)

    def _next_ready(self) -> Stage | None:
        """Take the tokens that have come; return the ready stage with the oldest frame."""
        for inbox in self._news:
            inbox.take()
        return self._ready()

    def _ready(self) -> Stage | None:
        """Return the ready stage with the oldest frame, after news have been taken."""
        oldest = self._oldest_ready()
        if oldest is None and self._take_room():
            oldest = self._oldest_ready()
        self._flush()
        return oldest

    def _take_room(self) -> bool:
        took = False
        for inbox in self._room:
            took |= inbox.take()
        return took

    def _oldest_ready(self) -> Stage | None:
        oldest: Stage | None = None
        for stage in self._stages:
            self._asked = stage
            if stage.is_ready() and (oldest is None or _age(stage) < _age(oldest)):
                oldest = stage
        return oldest

    def _look(self) -> bool:
        if self._messages is None:
            return False
        self._asked = None
        self._should_look = False
        return self._messages.look()

    def _wait(self) -> Stage | None:
        """Look and sleep by turns until a stage is ready, which none was just now; return it."""
        begin, waited_s = time.perf_counter(), self._waits[0]
        self._waits = waited_s, begin
        self.is_waiting = True
        if self._messages is not None:
            self._messages.begin_wait()
        stage = None
        while stage is None and not self._stopped:
            if self._messages is not None:
                moved = self._look()
                # A look may make a stage ready though it moved no message.
                stage = self._next_ready()
                if moved or stage is not None:
                    continue
            self._sleep(self._room_to_watch())
            stage = self._ready()
        self.is_waiting = False
        if self._messages is not None:
            self._messages.end_wait()
        end = time.perf_counter()
        self._waits = waited_s + end - begin, None
        if stage is not None:
            self._note(WAIT, begin, end, stage, stage.frame)
        return stage

    def _room_to_watch(self) -> Sequence[Watched]:
        """Return what to watch besides the news: what tells of room, if a stage lacks it."""
        return self._watched_room if any(each.lacks_room() for each in self._stages) else ()

    def _sleep(self, room: Sequence[Watched]) -> None:
        pause_s, foretelling = self._pause_s(), self._foretelling
        early_s = foretelling.sleep_s() if foretelling is not None else None
        if foretelling is None or early_s is None or (pause_s is not None and pause_s < early_s):
            self._waiter.wait(pause_s, room)
            return
        if early_s:
            if self._waiter.wait(early_s, room):
                return
            foretelling.note_wake()
        # All that follows a token runs now, too, so that it is in the caches when one comes.
        while foretelling.stays_awake() and not self._stopped:
            if self._next_ready() is not None:
                return

    def _pause_s(self) -> float | None:
        pauses = [p for p in (stage.pause_s() for stage in self._stages) if p is not None]
        if self._messages is not None:
            pauses.append(self._messages.pause_s())
        return min(pauses, default=None)
