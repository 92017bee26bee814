"""A run of the command: what is shown while it goes on and printed, and which files are written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.output import print_line, screen, talk, write_json
from rankslice.commands.run.bars import Bars
from rankslice.commands.run.classes import classes_csv, classes_json
from rankslice.commands.run.live import TERMINAL, LiveLines, LiveState, LiveView
from rankslice.commands.run.output import json_lines
from rankslice.commands.run.shapes import shape_lines, shapes_json
from rankslice.commands.run.show import print_run, print_survived, print_top, print_verdict
from rankslice.commands.run.surviving import run_surviving
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.output_file import STDOUT, write_output
from rankslice.framework.wording import on_one_line
from rankslice.measurement.verify import Verification
from rankslice.session.run import FinishedRun, Listeners, PreparedRun, run
from rankslice.session.run_record import run_record
from rankslice.views.page import page_html
from rankslice.views.run_page import run_page


@dataclass(frozen=True, slots=True)
class Telling:
    """What a run tells besides its results; of each file ``None``: it is not wanted."""

    verify: bool
    tolerance: float | None
    lines: Path | None
    """Of JSON, for results as they come."""
    live: Path | None
    """For samples of boards as they come; :data:`.TERMINAL`: they are shown."""
    json: Path | None
    html: Path | None
    classes: Path | None
    names: tuple[str, ...]
    """Of the classes; empty: unknown."""
    best: int
    """How many classes of each frame are told."""
    draw: Callable[[FinishedRun, Callable[[int], None]], object] | None = None
    """Draws what was found; returns what to say of it."""

    def leaves_screen(self, results: Path | None) -> bool:
        """Return whether nothing else goes to standard output, so that figures may."""
        files = (self.json, self.html, self.classes, results, self.lines, self.live)
        return STDOUT not in files


def run_and_tell(prepared: PreparedRun, wanted: Telling, command: tuple[str, ...]) -> None:
    """Run a job, and tell of it.

    Raises:
        RankSliceError: the job failed, results differ, or a file cannot be written.
    """
    frames = prepared.source.frames
    best = 0 if prepared.discards else wanted.best
    shows, drawn = wanted.leaves_screen(prepared.options.results), ""
    lines = None
    if wanted.lines is not None:
        lines = json_lines(prepared, wanted.lines, wanted.names, wanted.best, is_told=True)
    state = LiveState(prepared.plan, frames)
    view = LiveView(state) if wanted.live == TERMINAL else None
    values = LiveLines(wanted.live) if wanted.live not in (None, TERMINAL) else None

    def show(ran: FinishedRun) -> None:
        bars.end()
        if shows and best:
            print_top(ran, wanted.names, best, screen)
        if shows:
            print_run(ran.summary, screen)
            for line in shape_lines(ran.results):
                print_line(screen, on_one_line(line))
        _tell_drained(ran.drained_by)
        if wanted.verify:
            bars.begin("comparing", len(ran.labels))

    def note_completed(count: int) -> None:
        state.completed = count
        bars.update(count)

    def take_sample(board: str, sample: Sample) -> None:
        for each in (view, values):
            if each is not None:
                each.take(board, sample)

    with Bars() as bars:
        if view is not None:
            bars.show(view)
        elif not (wanted.lines == STDOUT and sys.stdout.isatty()):  # they are shown instead
            bars.begin("running", frames)
        finished = run(
            prepared,
            Listeners(
                note_completed,
                on_result=lines.write if lines is not None else None,
                on_enter=lines.entered.put if lines is not None else lambda entered: None,
                on_drain=_tell_drain,
                on_sample=take_sample,
                on_ran=show,
                on_verified=bars.update,
                on_search=lambda: bars.begin("finding the first difference", None),
            ),
            verify=wanted.verify,
            tolerance=wanted.tolerance,
            command=command,
        )
        if wanted.draw is not None:
            bars.begin("drawing", len(finished.labels))
            drawn = str(wanted.draw(finished, bars.update))
    if lines is not None:
        lines.close()
    if values is not None:
        values.close()
    if drawn and shows:
        print_line(screen, on_one_line(drawn))
    if wanted.json is not None:
        told = classes_json(finished, wanted.names, best) if best else None
        shapes = shapes_json(finished.results)
        write_json(wanted.json, {**finished.summary.to_json(), "classes": told, "shapes": shapes})
    if wanted.classes is not None:
        write_output(wanted.classes, classes_csv(finished, wanted.names, best), "--classes")
    if wanted.html is not None:
        record = run_record(prepared, finished.summary, command)
        write_output(wanted.html, page_html(run_page(record, finished.hardware)), "--html")
    _tell_verdict(finished.summary.verify, shows=shows)


def survive_and_tell(
    folder: Path,
    options: RunOptions,
    pipeline_options: Mapping[str, Any],
    results: Path | None,
    wanted: Telling,
) -> None:
    """Run a job that goes on without a board that is lost, and tell of it.

    Raises:
        RankSliceError: the job failed, results differ, or a file cannot be written.
    """
    with Bars() as bars:
        survived = run_surviving(
            folder,
            options,
            pipeline_options,
            results=results,
            output=wanted.lines,
            verify=wanted.verify,
            tolerance=wanted.tolerance,
            on_started=lambda source: bars.begin("running", source.frames),
            on_completed=bars.update,
            on_drain=_tell_drain,
            on_restart=lambda restart: print_line(talk, on_one_line(str(restart)), "warning"),
            on_warning=lambda text: print_line(talk, on_one_line(text), "warning"),
            on_verified=bars.update,
        )
    if wanted.json is not None:
        write_json(wanted.json, survived.to_json())
    shows = wanted.leaves_screen(results)
    if shows:
        print_survived(survived, screen)
    _tell_drained(survived.drained_by)
    _tell_verdict(survived.verify, shows=shows)


def _tell_drain(signal: str) -> None:
    print_line(talk, f"{signal}: no further frame enters; a second signal ends the job at once")


def _tell_drained(signal: str) -> None:
    """Tell what ended the stream; an empty name: it ended by itself."""
    if signal:
        print_line(talk, f"ended by {signal}: every frame that had entered has come out")


def _tell_verdict(verdict: Verification | None, *, shows: bool) -> None:
    """Tell whether results agree with the unsliced model's.

    Raises:
        RankSliceError: they do not.
    """
    if verdict is None:
        return
    if shows:
        print_verdict(verdict, screen)
    if not verdict.passed:
        # What follows the first clause explains it, and has been printed.
        reason = verdict.complaint.partition(";")[0] if shows else verdict.complaint
        raise RankSliceError(f"verify: {reason}")
