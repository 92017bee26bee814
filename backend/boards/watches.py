"""The launcher's watches on the boards of a job, and what they report: ends, samples, clocks."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rankslice.backend.boards.answers import (
    Answer,
    ClockReport,
    WatchReport,
    complaint_of,
    read_answer,
)
from rankslice.backend.boards.preflight import CheckedBoards
from rankslice.backend.boards.remote_process import RemoteProcess
from rankslice.backend.boards.ssh import BoardShell
from rankslice.backend.launch.job import MAX_LINES, end_session
from rankslice.backend.launch.messages import MESSAGE, BoardMessage, first_message, is_sudden
from rankslice.backend.runtime.figures.sampling import OnSample
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.wording import joined

MAX_SAMPLES = 512
"""That are kept of a board; then the better one of each two."""
_MAX_PENDING = 64
"""Numbers to which no answer has come yet."""

ClockSample = tuple[int, int, int]
"""The clock of the board; that of the launcher in the middle of the round trip; the length of the
round trip. Nanoseconds of CLOCK_MONOTONIC."""


class ClockSamples:
    """Samples of a board's clock, spread over the whole job, in bounded memory."""

    def __init__(self) -> None:
        self._sent_ns: dict[int, int] = {}
        self._numbers = 0
        self._group = 1
        """Of so many round trips the shortest is kept."""
        self._open: list[ClockSample] = []
        self._kept: list[ClockSample] = []
        self._lock = threading.Lock()

    def ask(self, now_ns: int) -> int:
        """Note that a number is sent now; return it."""
        with self._lock:
            self._numbers += 1
            self._sent_ns[self._numbers] = now_ns
            self._sent_ns.pop(self._numbers - _MAX_PENDING, None)
            return self._numbers

    def take(self, number: int, board_ns: int, now_ns: int) -> None:
        """Take the answer to a number; an answer to one that was not sent is ignored."""
        with self._lock:
            sent_ns = self._sent_ns.pop(number, None)
            if sent_ns is None:
                return
            self._open.append((board_ns, (sent_ns + now_ns) // 2, now_ns - sent_ns))
            if len(self._open) < self._group:
                return
            self._kept.append(_shortest(self._open))
            self._open = []
            if len(self._kept) == MAX_SAMPLES:
                pairs = zip(self._kept[::2], self._kept[1::2], strict=True)
                self._kept = [_shortest(pair) for pair in pairs]
                self._group *= 2

    def samples(self) -> list[ClockSample]:
        with self._lock:
            return [*self._kept, *self._open]


def _shortest(samples: list[ClockSample] | tuple[ClockSample, ...]) -> ClockSample:
    return min(samples, key=lambda sample: sample[2])


_START_S = 30.0
_RANKS_S = 120.0
_LOST_TICKS = 7
_SILENT_TICKS = 3
_REPLACED_TICKS = 4
"""Silence after which another job takes over: less than where it ends the work."""
_PATIENCE_S = 4.0
"""Time that mpirun gets to end by itself once a rank has reported a failure."""
_END_S = 5.0
_POLL_S = 1.0
_FIRST_PINGS_S = 1.0
"""A job that fails soon should have had its clocks compared, too."""
_ONE_LOSS_S = 0.5
"""Processes that end within this time have ended together."""
_SETTLE_S = 0.3
"""Time for boards to report what has ended there, after mpirun has failed."""
_LOST_DAEMON = re.compile(r"Remote daemon: \S+ on node (\S+)")
_UNHEARD = (
    "it must be able to reach all ports of this machine: is there a firewall, or another network?"
)


@dataclass(frozen=True, slots=True)
class _Loss:
    at: float
    """When the first of its processes ended."""
    what: str
    is_daemon: bool = False
    """Whether mpirun's daemon ended before its ranks, which mpirun itself never does."""


class _Watch:
    """The launcher's end of the connection to a board's watch."""

    def __init__(
        self, shell: BoardShell, process: RemoteProcess, lines: list[str], on_sample: OnSample
    ) -> None:
        self.shell = shell
        self.ready = threading.Event()
        self.over = threading.Event()
        self.error = ""
        self.started = False
        """Whether a rank has been seen on the board."""
        self.silent_ticks = 0
        self.loss: _Loss | None = None
        self._on_sample = on_sample
        self.clock = ClockSamples()
        self._had_ranks = self._had_daemon = self._is_ending = False
        self._lines = lines
        self.said: list[str] = []
        """What ranks and the watchdog there have said: these of the lines come from there."""
        self._beats = self._beats_seen = 0
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while (
                answer := self._process.answer(_POLL_S)
            ) is not None or not self._process.is_over:
                if answer is not None:
                    self._take(answer, time.monotonic_ns())
        except RankSliceError as error:
            self.error = complaint_of(error)
        if self.silent_ticks < _SILENT_TICKS:
            together = "all processes there have ended at once, the launcher's watch among them"
            self._lose(self.error or together)
        self.over.set()
        self.ready.set()

    def _lose(self, what: str, *, is_daemon: bool = False) -> None:
        """Note what has ended there, unless that was asked for, or follows from the first loss."""
        if self._is_ending:
            return
        now = time.monotonic()
        at = self.loss.at if self.loss else now
        if self.loss is None or (now - at < _ONE_LOSS_S and not self.loss.is_daemon):
            self.loss = _Loss(at, what, is_daemon)

    def mistake(self) -> Mistake:
        hint = "" if self.error else "dmesg there shows whether memory ran out"
        what = self.loss.what if self.loss else "mpirun's daemon there has ended while the job ran"
        return Mistake(self.shell.login.full_name, what, hint)

    def _take(self, answer: Answer, now_ns: int) -> None:
        """Process a report, which has come just now.

        Raises:
            RankSliceError: it is an error, or not a report.
        """
        if "ping" in answer:
            clock = read_answer(ClockReport, answer, self.shell.login.full_name)
            self.clock.take(clock.ping, clock.clock_ns, now_ns)
            return
        report = read_answer(WatchReport, answer, self.shell.login.full_name)
        self._beats += 1
        self.started = self.started or report.ranks > 0
        if report.sample is not None:
            self._on_sample(self.shell.login.board, report.sample)
        if report.state == "alive":
            self._note_losses(report)
        if report.state == "message" and len(self._lines) < MAX_LINES:
            self.said.append(report.message)
            self._lines.append(report.message)
        elif report.state == "watching":
            self.ready.set()

    def _note_losses(self, report: WatchReport) -> None:
        without_ranks = self._had_ranks and not report.ranks
        without_daemon = self._had_daemon and not report.daemon
        self._had_ranks |= report.ranks > 0
        self._had_daemon |= report.daemon
        if without_ranks and without_daemon:
            self._lose("all processes of the job there have ended at once")
        elif without_daemon:
            self._lose("mpirun's daemon there has ended while ranks were running", is_daemon=True)
        elif without_ranks:
            self._lose("all ranks there have ended at once")

    def ping(self) -> None:
        self._process.write(b"%d\n" % self.clock.ask(time.monotonic_ns()))

    def tick(self) -> None:
        self.ping()
        self.silent_ticks = self.silent_ticks + 1 if self._beats == self._beats_seen else 0
        self._beats_seen = self._beats

    def is_silent(self, ticks: int = _SILENT_TICKS) -> bool:
        return self.over.is_set() or self.silent_ticks >= ticks

    def note_end(self) -> None:
        """Note that the job has ended well: what ends there is not lost, nor was it before."""
        self._is_ending, self.loss = True, None

    def ask_to_end(self, *, has_failed: bool) -> None:
        self._is_ending = True
        self._process.write(b"failed\n" if has_failed else b"succeeded\n")

    def close(self) -> None:
        self._process.close()
        self._reader.join()


class Watches:
    """Watches on all boards of a job, and on mpirun: a context manager."""

    def __init__(
        self,
        boards: CheckedBoards,
        start_s: float | None = None,
        on_failure: Callable[[RankSliceError], None] | None = None,
        on_sample: OnSample = lambda board, sample: None,
        *,
        has_events: bool = False,
    ) -> None:
        """Take what to watch.

        Args:
            boards: of the job.
            start_s: seconds within which mpirun must have started ranks on all of them; 120 by
                default.
            on_failure: told that the job has failed and why, as soon as that is known; mpirun then
                gets no time to end by itself, which takes long where a board is lost.
            on_sample: told once a second what each board and its ranks are like, in threads.
            has_events: the ranks' rings of events lie in the folder of the run.
        """
        self._on_failure = on_failure
        self._on_sample = on_sample
        self._has_events = has_events
        self._start_s = start_s or _RANKS_S
        self._without_rank: list[_Watch] = []
        self.lines: list[str] = []
        """Lines of ranks and mpirun, in the order of arrival."""
        self._boards = boards
        self._watches: list[_Watch] = []
        self._stop = threading.Event()
        self._lost: list[_Watch] = []
        self.has_ended_mpirun = False
        """Whether the launcher has ended mpirun, because it did not end by itself."""

    def __enter__(self) -> Watches:
        try:
            run, events = self._boards.run, self._has_events
            for shell, _ in self._boards.checked:
                process = shell.start("watch", run=run, events=events)
                self._watches.append(_Watch(shell, process, self.lines, self._on_sample))
            deadline = time.monotonic() + _START_S
            for watch in self._watches:
                watch.ready.wait(max(0.0, deadline - time.monotonic()))
            raise_mistakes(
                Mistake(
                    watch.shell.login.full_name, watch.error or "the watch cannot be started there"
                )
                for watch in self._watches
                if watch.over.is_set() or not watch.ready.is_set()
            )
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        if isinstance(error, RankSliceError):
            time.sleep(_SETTLE_S)
        self._lost = self._silent()
        for watch in self._watches:
            watch.ask_to_end(has_failed=kind is not None)
        deadline = time.monotonic() + _END_S
        for watch in self._watches:
            if watch not in self._lost:
                watch.over.wait(max(0.0, deadline - time.monotonic()))
        self._close()

    def _close(self) -> None:
        self._stop.set()
        for watch in self._watches:
            watch.close()

    def oversee(self, process: subprocess.Popen[str]) -> None:
        """Watch boards and mpirun in a thread, which ends mpirun if it does not end by itself."""
        threading.Thread(target=self._oversee, args=(process,), daemon=True).start()

    def _oversee(self, process: subprocess.Popen[str]) -> None:
        failed_at: float | None = None
        begin = next_tick = time.monotonic()
        while not self._stop.wait(0.1):
            now = time.monotonic()
            if now - begin < _FIRST_PINGS_S:
                for watch in self._watches:
                    watch.ping()
            if now >= next_tick:
                next_tick = now + 1
                for watch in self._watches:
                    watch.tick()
            if process.poll() is not None:
                continue  # files of the job are fetched, and boards watched until they are here
            if now - begin > self._start_s and failed_at is None:
                self._without_rank = [watch for watch in self._watches if not watch.started]
                if self._without_rank:
                    self._end(process)
                    return
            if failed_at is None and (self._has_message() or self._has_lost_board()):
                failed_at = now
            if failed_at is None:
                continue
            is_known = self._has_lost_board() or any(w.said or w.loss for w in self._watches)
            settled_s = _SETTLE_S if is_known else _PATIENCE_S
            if self._on_failure is not None and now - failed_at > settled_s:
                self._lost = self._silent()
                self._on_failure(self.explained(RankSliceError("the job has failed")))
                self._end(process)
                return
            if now - failed_at > _PATIENCE_S:
                self._end(process)
                return

    def note_success(self) -> None:
        """Note that the job has ended well, so its processes on boards end, too."""
        for watch in self._watches:
            watch.note_end()

    def _has_lost_board(self) -> bool:
        ticks = _LOST_TICKS if self._on_failure is None else _REPLACED_TICKS
        return any(watch.is_silent(ticks) for watch in self._watches)

    def _silent(self) -> list[_Watch]:
        return [watch for watch in self._watches if watch.is_silent()]

    def _end(self, process: subprocess.Popen[str]) -> None:
        self.has_ended_mpirun = True
        end_session(process)

    def clock_samples(self) -> dict[str, list[ClockSample]]:
        return {watch.shell.login.board: watch.clock.samples() for watch in self._watches}

    def lost_boards(self) -> list[str]:
        return [watch.shell.login.board for watch in self._lost]

    def explained(self, error: RankSliceError) -> RankSliceError:
        """Return the error of a job, completed or replaced by what is known of the boards."""
        if self._without_rank and not self._lost and not self._has_message():
            found = f"mpirun has started no rank there within {self._start_s:g} s"
            names = [watch.shell.login.full_name for watch in self._without_rank]
            return RankSliceError(*(Mistake(name, found, _UNHEARD) for name in names))
        logins = [watch.shell.login for watch in self._lost if watch.loss is None]
        if not logins:
            return self._loss_error() or self._rank_error() or error
        places = joined([login.full_name for login in logins])
        silent = [login.board for login in logins]
        hint = f"{places} did not answer: is it on, and is its cable plugged in?"
        if not self._has_message():
            return RankSliceError(BoardMessage(hint, silent=silent))
        first, *others = (self._rank_error() or error).mistakes
        return RankSliceError(BoardMessage(f"{first}; {hint}", silent=silent), *others)

    def _rank_error(self) -> RankSliceError | None:
        """Return the first report of a rank, rather by the watch of its board than by mpirun.

        Messages may arrive after mpirun's end.
        """
        senders = {line: watch.shell.login.board for watch in self._watches for line in watch.said}
        known = [line for line in self.lines if MESSAGE not in line or line in senders]
        message = first_message(known) or first_message(self.lines)
        sender = senders.get(MESSAGE + message, "")
        return RankSliceError(BoardMessage(message, sender)) if message else None

    def _loss_error(self) -> RankSliceError | None:
        """Name the board that lost its processes first, if that is why the job ended."""
        without_daemon = self._named_by_mpirun()
        if without_daemon is not None:
            return RankSliceError(without_daemon.mistake())
        losses = [(watch.loss.at, watch) for watch in self._watches if watch.loss]
        if not losses:
            return None
        _, first = min(losses, key=lambda loss: loss[0])
        has_reported = not all(is_sudden(line) for line in self.lines if MESSAGE in line)
        is_cause = first in self._lost or (first.loss is not None and first.loss.is_daemon)
        # A watchdog that is alive reports the end of its ranks.
        if is_cause or not (has_reported or first.said):
            return RankSliceError(first.mistake())
        return None

    def _named_by_mpirun(self) -> _Watch | None:
        found = (_LOST_DAEMON.search(line) for line in self.lines)
        node = next((match[1] for match in found if match), "")
        pairs = zip(self._watches, self._boards.checked, strict=False)
        named = [
            watch for watch, (shell, check) in pairs if node in (shell.login.host, check.hostname)
        ]
        # Ranks can print the same words: the board's own watch has to agree.
        return named[0] if node and len(named) == 1 and named[0].loss else None

    def _has_message(self) -> bool:
        return any(MESSAGE in line for line in self.lines)
