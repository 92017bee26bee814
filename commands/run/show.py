"""What a run shows while it goes on and prints in the end, and which files it writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.output_file import STDOUT, TERMINAL, write_json, write_output
from rankslice.framework.wording import on_one_line
from rankslice.measurement.verify import Verification
from rankslice.session.build_folder import read_plan
from rankslice.session.callbacks import Callbacks, FinishedRun
from rankslice.session.fail_over import Restart
from rankslice.session.prepare import PreparedRun
from rankslice.session.run import Execute, run
from rankslice.session.run_record import run_record
from rankslice.views.classes import classes_csv, classes_json, classes_parts
from rankslice.views.json_lines import JsonLines
from rankslice.views.live import LiveLines, LiveState, LiveView
from rankslice.views.page import page_html
from rankslice.views.run_page import run_page
from rankslice.views.run_text import (
    restart_lines,
    run_parts,
    shape_lines,
    shapes_json,
    verdict_lines,
)
from rankslice.views.terminal import MAX_LINE, Bars, print_line, screen, show, talk


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """What a run shows and writes besides its results; of each file ``None``: it is not wanted."""

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
    """How many classes of each frame are shown."""
    survives: bool = False
    """Whether another job may take over."""
    draw: Callable[[FinishedRun, Callable[[int], None]], str] | None = None
    """Draws boxes or classes; returns what to print of it."""

    def leaves_screen(self, results: Path) -> bool:
        """Whether standard output is free for the figures."""
        files = (self.json, self.html, self.classes, results, self.lines, self.live)
        return STDOUT not in files


def run_and_show(
    prepared: PreparedRun, outputs: RunOutputs, command: tuple[str, ...], execute: Execute
) -> None:
    """Run a job, show it, and write what is wanted of it."""
    display = _Display(prepared, outputs)
    with display.bars as bars:
        display.begin()
        finished = run(
            prepared,
            display.callbacks(),
            execute=execute,
            verify=outputs.verify,
            tolerance=outputs.tolerance,
            command=command,
        )
        drawn = ""
        if outputs.draw is not None:
            bars.begin("drawing", len(finished.labels))
            drawn = outputs.draw(finished, bars.update)
    display.close()
    if drawn and display.shows:
        print_line(screen, on_one_line(drawn))
    if outputs.json is not None:
        write_json(outputs.json, _run_json(finished, outputs, display.best))
    if outputs.classes is not None:
        text = classes_csv(finished, outputs.names, display.best)
        write_output(outputs.classes, text, "--classes")
    if outputs.html is not None:
        record = run_record(finished.job or prepared, finished.summary, command)
        write_output(outputs.html, page_html(run_page(record, finished.hardware)), "--html")
    _show_verdict(finished.summary.verify, shows=display.shows)


class _Display:
    """What is shown, and written line by line, while a job runs."""

    def __init__(self, prepared: PreparedRun, outputs: RunOutputs) -> None:
        self._outputs = outputs
        self.best = 0 if prepared.discards else outputs.best
        self.shows = outputs.leaves_screen(prepared.options.results)
        self.bars = Bars()
        self._state = LiveState(prepared.plan, prepared.source.frames)
        self._lines = None
        if outputs.lines is not None:
            self._lines = JsonLines(
                outputs.lines,
                prepared.plan.job.outputs,
                prepared.source.label,
                outputs.names,
                outputs.best,
                has_arrivals=prepared.options.announce,
            )
        self._view = LiveView(self._state) if outputs.live == TERMINAL else None
        is_file = outputs.live is not None and self._view is None
        self._samples = LiveLines(outputs.live) if outputs.live and is_file else None

    def begin(self) -> None:
        if self._view is not None:
            self.bars.show(self._view)
        elif not (self._outputs.lines == STDOUT and sys.stdout.isatty()):  # they are shown instead
            self.bars.begin("running", self._state.frames)

    def callbacks(self) -> Callbacks:
        lines = self._lines
        return Callbacks(
            self._completed,
            self._sample,
            on_result=lines.write if lines is not None else None,
            on_enter=lines.entered.put if lines is not None else lambda entered: None,
            on_drain=self._drain,
            on_restart=self._restart,
            on_warning=lambda text: print_line(talk, on_one_line(text), "warning"),
            on_ran=self._ran,
            on_verified=self.bars.update,
            on_search=lambda: self.bars.begin("finding the first difference", None),
        )

    def _completed(self, count: int) -> None:
        self._state.completed = count
        self.bars.update(count)

    def _sample(self, board: str, sample: Sample) -> None:
        for taker in (self._view, self._samples):
            if taker is not None:
                taker.take(board, sample)

    def _drain(self, signal: str) -> None:
        print_line(talk, f"{signal}: no further frame enters; a second signal ends the job at once")

    def _restart(self, restart: Restart) -> None:
        print_line(talk, on_one_line(str(restart)), "warning")
        self._state.follow(read_plan(restart.folder))

    def _ran(self, ran: FinishedRun) -> None:
        self.bars.end()
        if self.shows and self.best:
            classes = classes_parts(ran, self._outputs.names, self.best)
            show(screen, *classes, max_cell=MAX_LINE)
        if self.shows:
            lines = (*shape_lines(ran.results), *restart_lines(ran.restarts))
            show(screen, *run_parts(ran.summary), *map(on_one_line, lines))
        if ran.drained_by:
            text = f"ended by {ran.drained_by}: every frame that had entered has come out"
            print_line(talk, text)
        if self._outputs.verify:
            self.bars.begin("comparing", len(ran.labels))

    def close(self) -> None:
        for file in (self._lines, self._samples):
            if file is not None:
                file.close()


def _run_json(finished: FinishedRun, outputs: RunOutputs, best: int) -> dict[str, Any]:
    record: dict[str, Any] = {
        **finished.summary.to_json(),
        "classes": classes_json(finished, outputs.names, best) if best else None,
        "shapes": shapes_json(finished.results),
    }
    if outputs.survives:
        record["restarts"] = [restart.to_json() for restart in finished.restarts]
    return record


def _show_verdict(verdict: Verification | None, *, shows: bool) -> None:
    if verdict is None:
        return
    if shows:
        show(screen, *verdict_lines(verdict))
    if not verdict.passed:
        # What follows the first clause explains it, and has been printed.
        reason = verdict.complaint.partition(";")[0] if shows else verdict.complaint
        raise RankSliceError(f"verify: {reason}")
