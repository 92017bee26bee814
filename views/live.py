"""``run --live``: what ranks and boards are like while a job runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from rankslice.backend.runtime.figures.sampling import Sample, split_name
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import LIVE, STDOUT, TERMINAL
from rankslice.framework.plan import Plan
from rankslice.framework.wording import (
    bytes_text,
    digits,
    fixed_text,
    joined,
    percent_text,
    time_text,
)
from rankslice.views.content import Table
from rankslice.views.json_lines import LineFile, check_lines
from rankslice.views.terminal import print_line, rich_table, shortened, talk

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = "rankslice-live"
VERSION = 1

_NOTHING = "-"


def check_live(path: Path, lines: Path | None) -> Path:
    """Return the target of ``--live``: a file, :data:`STDOUT`, or :data:`TERMINAL`."""
    if path == TERMINAL:
        if lines == STDOUT and sys.stdout.isatty() and talk.is_terminal:
            problem = "would be in one terminal with the lines of --output -"
            raise RankSliceError(Mistake("--live", problem, "give one of them a FILE.jsonl"))
        return path
    return check_lines(path, "--live", LIVE, "live values")


class LiveState:
    """The newest samples of a job's boards."""

    def __init__(self, plan: Plan, frames: int | None) -> None:
        self.plan = plan
        self.frames = frames
        self.completed = 0
        """How many results have come."""
        self.samples: dict[str, Sample] = {}
        """By board."""

    def take(self, board: str, sample: Sample) -> None:
        """Take a board's newest sample; boards keep the plan's order, whichever is first."""
        newest = {**self.samples, board: sample}
        names = (*(rank.board for rank in self.plan.ranks), *newest)
        self.samples = {name: newest[name] for name in names if name in newest}

    def follow(self, plan: Plan) -> None:
        self.plan, self.samples = plan, {}

    def of_job(self, name: str) -> float | None:
        """Return a value of the job, or of a rank; ``None``: it is not known now."""
        values = (sample.values.get(name) for sample in self.samples.values())
        return next((value for value in values if value is not None), None)


class LiveLines:
    """Writes an object per sample, as they come."""

    def __init__(self, target: Path) -> None:
        self._file = LineFile(target, "--live")
        self._lock = threading.Lock()
        self._error: RankSliceError | SystemExit | None = None

    def take(self, board: str, sample: Sample) -> None:
        """Write a board's sample; if the file cannot be written, :meth:`close` raises."""
        record = {
            "format": FORMAT,
            "version": VERSION,
            "time_s": round(time.time(), 3),
            "board": board,
            "time_ns": sample.time_ns,
            "values": sample.values,
            "absent": list(sample.absent),
        }
        with self._lock:
            if self._error is None:
                try:
                    self._file.write(record)
                except (RankSliceError, SystemExit) as error:
                    self._error = error

    def close(self) -> None:
        """Close the file.

        Raises:
            RankSliceError: it could not be written.
            SystemExit: nobody reads standard output any more.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            self._file.close()


class LiveView:
    """Shows the newest samples: a context manager.

    A terminal shows the view until the end of the job; a terminal that cannot go back in its text,
    or a file of messages, gets a line a second.
    """

    def __init__(self, state: LiveState, console: Console = talk) -> None:
        self._state = state
        self._console = console
        self._draws = console.is_terminal and not console.is_dumb_terminal
        self._began_s = time.monotonic()
        self._live: Live | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> LiveView:
        if self._draws:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
            self._live.update(live_view(self._state), refresh=True)
        return self

    def __exit__(self, *ended: object) -> None:
        with self._lock:
            if self._live is not None:
                self._live.stop()
            self._live = None

    def take(self, board: str, sample: Sample) -> None:
        """Show a board's newest sample."""
        with self._lock:
            self._state.take(board, sample)
            if self._live is not None:
                self._live.update(live_view(self._state), refresh=True)
            elif not self._draws and board == self._board_of_source:
                passed_s = time.monotonic() - self._began_s
                print_line(self._console, f"{passed_s:.0f} s: {live_line(self._state)}")

    @property
    def _board_of_source(self) -> str:
        """The board whose samples are the pace; a job on this machine has one."""
        plan = self._state.plan
        source = plan.ranks[plan.job.source].board
        return source if source in self._state.samples else next(iter(self._state.samples), "")


def live_view(state: LiveState) -> RenderableType:
    tables = (_rank_table(state), _board_table(state))
    return Group(Text(_headline(state)), *(rich_table(table) for table in tables if table.rows))


def live_line(state: LiveState) -> str:
    parts = [_headline(state)]
    for number in range(len(state.plan.ranks)):
        computes, waits = (_cell(state, f"{n}_share.rank{number}") for n in ("compute", "wait"))
        if computes != _NOTHING:
            parts.append(f"rank {number} computes {computes}, waits {waits}")
    for board, sample in state.samples.items():
        cells = [cell for heading, cell in _board_cells(sample) if heading in _SHORT]
        parts += [f"{board} {', '.join(cells)}"] if cells else []
    return "; ".join(parts)


_SHORT = ("temperature", "power")


def _headline(state: LiveState) -> str:
    rate, inside = state.of_job("rate_fps"), state.of_job("frames_inside")
    of = "" if state.frames is None else f" of {state.frames}"
    completed = max(state.completed, int(state.of_job("completed") or 0))
    text = f"{completed}{of} frames"
    if rate is None:
        return text if completed else f"{text}; the job is starting"
    text += f", {fixed_text(rate, 1)} frames/s"
    p50, p99 = (state.of_job(f"latency_p{percent}_ms") for percent in (50, 99))
    if p50 is not None and p99 is not None:
        text += f", latency p50 {time_text(p50)}, p99 {time_text(p99)}"
    waiting = state.of_job("frames_waiting")
    queue = "" if waiting is None else f", {waiting:.1f} waiting"
    return f"{text}; {inside or 0:.0f} inside{queue}"


_RANK_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "frames/s": ("frames_per_s", "{:.1f}".format),
    "computes": ("compute_share", percent_text),
    "waits": ("wait_share", percent_text),
    "processor": ("processor_share", percent_text),
    "memory": ("memory_mb", "{:.0f} MB".format),
}


def _rank_table(state: LiveState) -> Table:
    rows = []
    for number, rank in enumerate(state.plan.ranks):
        cells = (
            _cell(state, f"{name}.rank{number}", text) for name, text in _RANK_COLUMNS.values()
        )
        rows.append((str(number), rank.key, *cells))
    return Table("", ("rank", "accelerator", *_RANK_COLUMNS), tuple(rows))


def _cell(state: LiveState, name: str, text: Callable[[float], str] = percent_text) -> str:
    value = state.of_job(name)
    return _NOTHING if value is None else text(value)


def _board_table(state: LiveState) -> Table:
    cells = {board: dict(_board_cells(sample)) for board, sample in state.samples.items()}
    headings = dict.fromkeys(heading for row in cells.values() for heading in row)
    rows = tuple(
        (board, *(row.get(name, _NOTHING) for name in headings)) for board, row in cells.items()
    )
    return Table("", ("board", *headings), rows if headings else ())


def _board_cells(sample: Sample) -> Iterator[tuple[str, str]]:
    by_quantity: dict[str, dict[str, float]] = {}
    for name, value in sample.values.items():
        quantity, part = split_name(name)
        if isinstance(part, str):
            by_quantity.setdefault(quantity, {})[part] = value
    if zones := by_quantity.get("temperature_c"):
        hottest = max(zones, key=zones.__getitem__)
        yield "temperature", f"{zones[hottest]:.0f} °C ({shortened(hottest, 20)})"
    if clocks := by_quantity.get("frequency_mhz"):
        least, most = min(clocks.values()), max(clocks.values())
        yield "clock", f"{least:.0f} MHz" if least == most else f"{least:.0f}-{most:.0f} MHz"
    brakes = {**by_quantity.get("cooling_state", {}), **by_quantity.get("throttled", {})}
    if brakes:
        slowed = [name for name, value in brakes.items() if value > 0]
        yield "throttled", shortened(joined(slowed)) if slowed else "no"
    for quantity, heading, unit in _PLAIN:
        if quantity in by_quantity:
            yield heading, f"{digits(sample.values[quantity])} {unit}"
    if "memory_available_mb" in by_quantity:
        yield "memory left", bytes_text(int(sample.values["memory_available_mb"] * 1e6))


_PLAIN: Sequence[tuple[str, str, str]] = (
    ("power_w", "power", "W"),
    ("gpu_utilisation_percent", "GPU", "%"),
    ("gpu_temperature_c", "GPU at", "°C"),
    ("gpu_power_w", "GPU power", "W"),
)
"""Quantities that a board has one of, with their headings and units."""
