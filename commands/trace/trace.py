"""``rankslice trace``: a job run with all its events kept, or the last one that failed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankslice.backend.runtime.figures.operator_profile import RankOperators
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.summary.rates import TOO_FEW, frames_to_fill, latency_text
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import PAGE, check_output, write_bytes, write_output
from rankslice.framework.plan import Plan
from rankslice.framework.wording import bytes_text, digits, joined, quoted
from rankslice.frontend.costs.cuts import Cut
from rankslice.measurement.board_history import BoardHistory
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.trace.journeys import (
    Journeys,
    Stretch,
    journeys,
    longest_journeys,
    stretches_of,
)
from rankslice.measurement.trace.path import steady_span, whole_span
from rankslice.measurement.trace.trace_events import Trace, events_needed, failure_of, read_failure
from rankslice.measurement.trace.trace_findings import Findings, findings, journeys_json
from rankslice.measurement.trace.traced_operators import PlacedRow, records_of, table_of
from rankslice.session.build_folder import TRACE, read_plan
from rankslice.session.inspecting.inspect import inspect_model
from rankslice.session.run import Callbacks, FinishedRun, PreparedRun, prepare, run
from rankslice.session.shared_options import DEFAULT_LAUNCHING, Launching
from rankslice.views.board_charts import counters_of, hardware_figures
from rankslice.views.content import Notice, Part, Section
from rankslice.views.perfetto_file import perfetto_bytes
from rankslice.views.run_parts import rate_of
from rankslice.views.trace_page import drawing_notes, ranks_section, trace_page
from rankslice.views.trace_timeline import Timeline, timeline

_MAX_FRAMES_WITH_OPERATORS = 1000
"""Frames: engines keep their profiles in memory, and stop at a million operators."""

_NOWHERE = Path("/dev/null")


@dataclass(frozen=True, slots=True)
class Traced:
    """Where the time of a job's frames went."""

    findings: Findings
    drawn: Timeline
    summary: RunSummary | None
    """Figures of the run; ``None``: it failed."""
    words: tuple[str, ...]
    """What limits the rate, then what ranks wait for."""
    notes: tuple[str, ...]
    """How exact it is, and what is missing."""
    operators: tuple[PlacedRow, ...] = ()
    """How long each took, if the trace has any."""
    hardware: tuple[BoardHistory, ...] = ()
    """What each board was like, second by second."""

    @property
    def parts(self) -> Iterator[Part | Section | str]:
        """What the terminal shows."""
        yield ranks_section(self.findings)
        if self.summary is not None:
            yield rate_of(self.summary)
            yield latency_text(self.summary.latency_ms)
        bottleneck, *waits = self.words
        yield Notice("Bottleneck", (f"bottleneck: {bottleneck}", *waits))
        yield Notice("Notes", self.notes, "note")

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, for ``trace --json``."""
        record = journeys_json(self.findings, self.words, self.notes, self.summary)
        return {**record, "operators": records_of(self.operators)}


def prepare_trace(
    folder: Path,
    options: RunOptions,
    launching: Launching = DEFAULT_LAUNCHING,
    *,
    operators: bool = False,
) -> PreparedRun:
    """Check what can be checked before a job is run with all its events kept.

    Raises:
        RankSliceError: the job cannot be run.
    """
    prepared = prepare(folder, options, launching, results=_NOWHERE)
    kept = events_needed(prepared.plan, prepared.source.frames)
    if operators and not 0 < (prepared.source.frames or 0) <= _MAX_FRAMES_WITH_OPERATORS:
        found = f"supports at most {_MAX_FRAMES_WITH_OPERATORS} frames"
        raise RankSliceError(Mistake("--operators", found, "give fewer --frames"))
    asked = replace(prepared.options, events=Path("events"), events_kept=kept, operators=operators)
    return replace(prepared, options=asked)


def page_of(folder: Path) -> Path:
    """Return the default file of the page, after checking that it can be written."""
    read_plan(folder)
    return check_output(folder / TRACE, "--html", PAGE)


def trace_run(
    prepared: PreparedRun,
    on_completed: Callable[[int], None] = lambda count: None,
    *,
    command: Sequence[str] = (),
) -> Traced:
    """Run a job, and return where the time of its frames went.

    Raises:
        RankSliceError: the job failed, or too few frames came out.
    """
    finished: FinishedRun = run(prepared, Callbacks(on_completed), command=command)
    if finished.trace is None:
        raise RankSliceError("the run has kept no events")
    summary = finished.summary
    taken, stretch = longest_journeys(finished.trace, summary.window, summary.surge_window)
    traced = _traced(prepared.folder, taken, summary, finished.operators, stretch)
    return replace(traced, hardware=finished.hardware)


def trace_failure(folder: Path) -> Traced:
    """Trace the last frames of the job that failed last.

    Raises:
        RankSliceError: no job of the folder has failed, or too few frames came out.
    """
    plan, failure = read_plan(folder), failure_of(folder)
    reason = " ".join(failure.message)
    note = f"this is the end of a job that failed at {failure.time}: {reason}"
    trace = read_failure(folder, plan)
    stretch = stretches_of(trace)[-1:] if plan.surge is not None else []
    taken = journeys(trace, None, *stretch)
    traced = _traced(folder, taken, None, (), *stretch)
    return replace(traced, notes=(note, *traced.notes))


def _traced(
    folder: Path,
    taken: Journeys,
    summary: RunSummary | None,
    operators: Sequence[RankOperators] = (),
    stretch: Stretch | None = None,
) -> Traced:
    span = steady_span(taken)
    if span is None and summary is None:  # what the ranks did last is worth a look
        span = whole_span(taken)
    if span is None:
        what = "fewer than two frames have results, which is too few for a trace"
        raise RankSliceError(Mistake(str(folder), what, "give more --frames"))
    shown = findings(taken, span, summary)
    advice = cut_advice(folder, shown.channels)
    limit = "; ".join(filter(None, (shown.bottleneck, advice)))
    drawn = timeline(shown, operators)
    notes = (
        *_notes(taken.trace, drawn, summary, stretch),
        *_operator_notes(drawn),
        *_silent_engines(taken.plan, operators),
        *_replaced_engines(operators),
    )
    rows = tuple(table_of(taken.plan, operators, taken.frames))
    return Traced(shown, drawn, summary, (limit, *shown.waits), notes, rows)


def _notes(
    trace: Trace, drawn: Timeline, summary: RunSummary | None, stretch: Stretch | None
) -> Iterator[str]:
    boards = {rank.board for rank in trace.plan.ranks}
    if len(boards) > 1:
        yield _clock_note(trace)
    lost = sum(rank.lost or 0 for rank in trace.ranks)
    if lost:
        yield f"{lost} older events were overwritten: the journeys are those of the last frames"
    if summary is not None and summary.throughput_of == TOO_FEW:
        least = 2 * frames_to_fill(summary.window) + 1
        yield f"these are too few frames for a steady state: give {least} --frames or more"
    which = "the last" if summary is None else "the longest series"
    yield from drawing_notes(drawn, stretch, which)
    silent = [str(rank.rank) for rank in trace.ranks if not len(rank.events)]
    if silent:
        yield f"there are no events of rank{'s' * (len(silent) > 1)} {joined(silent)}"
    if summary is None:
        yield "processor times of the ranks are not available: a shared core cannot be named"


def _operator_notes(drawn: Timeline) -> Iterator[str]:
    known = [note for note in drawn.operators if np.isfinite(note.error_ns)]
    for by in dict.fromkeys(note.by for note in known):
        worst_us = max(note.error_ns for note in known if note.by == by) / 1e3
        whose = f"operators on {by}" if by else "operators"
        yield f"timestamps of {whose} are accurate to {digits(worst_us)} us"
    for note in dict.fromkeys(drawn.operators):
        if not np.isfinite(note.error_ns):
            yield (
                f"rank {note.rank}: {note.by} does not report when its operators ran; the trace"
                " shows when they were queued"
            )


def _silent_engines(plan: Plan, operators: Sequence[RankOperators]) -> Iterator[str]:
    ranks: dict[str, list[str]] = {}
    for of_rank, rank in zip(operators, plan.ranks, strict=False):
        if not of_rank.segments and plan.of_rank(rank.rank):
            ranks.setdefault(rank.engine, []).append(str(rank.rank))
    for engine, numbers in ranks.items():
        yield (
            f"rank{'s' * (len(numbers) > 1)} {joined(numbers)} show{'s' * (len(numbers) == 1)} no"
            f" operators: the engine {engine} does not report when they run"
        )


def _replaced_engines(operators: Sequence[RankOperators]) -> Iterator[str]:
    """Yield on what ranks ran whose engines have no profile."""
    ranks: dict[str, dict[str, None]] = {}
    for of_rank in operators:
        for segment in of_rank.segments:
            ranks.setdefault(segment.ran_on, {})[str(of_rank.rank)] = None
    for name, numbers in ranks.items():
        if name:
            yield (
                f"rank{'s' * (len(numbers) > 1)} {joined([*numbers])} ran on {name} in this trace,"
                " as the interpreter has no profile"
            )


def _clock_note(trace: Trace) -> str:
    worst = max(trace.error_ns)
    if not np.isfinite(worst):
        apart = [str(n) for n, error in enumerate(trace.error_ns) if not np.isfinite(error)]
        return (
            f"the clock of rank{'s' * (len(apart) > 1)} {joined(apart)} was never compared with"
            " the source's: do not compare their times with those of other boards"
        )
    return f"timestamps of different boards are accurate to {digits(worst / 1e3)} us"


def write_page(traced: Traced, file: Path) -> None:
    page = trace_page(
        traced.findings,
        traced.drawn,
        traced.words,
        traced.notes,
        shows_end=traced.summary is None,
        boards=hardware_figures(traced.hardware),
    )
    write_output(file, page, "--html")


def write_perfetto(traced: Traced, file: Path) -> None:
    counters = counters_of(traced.findings.journeys.trace, traced.hardware)
    content = perfetto_bytes(traced.findings, traced.drawn, counters)
    write_bytes(file, content, "--perfetto")


_LESS = 0.5
"""Of what crosses now, at most: another cut has to be worth building again."""
_FARTHEST = 0.25
"""Share of the model's work that may change sides."""


def cut_advice(folder: Path, channels: Collection[int]) -> str:
    """Return which cut near the present one sends less than half; empty: none, or no model."""
    if not channels:
        return ""
    try:
        inspected = inspect_model(folder)
    except RankSliceError:
        return ""
    if inspected.plan is None:
        return ""
    tensors = {channel.tensor for channel in inspected.plan.channels if channel.number in channels}
    return _advice(inspected.cuts, tensors)


def _advice(cuts: Sequence[Cut], tensors: set[str]) -> str:
    now = next((cut for cut in cuts if {tensor.name for tensor in cut.tensors} == tensors), None)
    if now is None or not now.nbytes:
        return ""
    near = [
        cut
        for cut in cuts
        if cut.nbytes
        and not cut.obstacle
        and cut.nbytes <= _LESS * now.nbytes
        and abs(cut.share - now.share) <= _FARTHEST
        and cut.divides
    ]
    if not near:
        return ""
    best = min(near, key=lambda cut: (abs(cut.share - now.share), cut.nbytes or 0))
    times = now.nbytes / (best.nbytes or 1)
    return (
        f"a cut after {quoted(best.after)} would send {_part(times)}:"
        f" {bytes_text(best.nbytes or 0)} instead of {bytes_text(now.nbytes)} per frame"
    )


def _part(times: float) -> str:
    """Return a part in words: ``half``, ``a quarter``, ``a 32nd``."""
    whole = round(times)
    names = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 8: "an eighth", 10: "a tenth"}
    if abs(times - whole) <= 0.1 and whole in names:
        return names[whole]
    return f"{100 / times:.3g} % of that"
