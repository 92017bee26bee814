"""What a run shows while it goes on and prints in the end, and which files it writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.commands.output import write_json
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.output_file import STDOUT, write_output
from rankslice.framework.wording import on_one_line
from rankslice.measurement.verify import Verification
from rankslice.session.build_folder import read_plan
from rankslice.session.callbacks import Callbacks, FinishedRun
from rankslice.session.fail_over import Restart
from rankslice.session.prepare import PreparedRun
from rankslice.session.run import Execute, run, run_job_here
from rankslice.session.run_record import run_record
from rankslice.views.classes import classes_csv, classes_json
from rankslice.views.json_lines import json_lines
from rankslice.views.live import TERMINAL, LiveLines, LiveState, LiveView
from rankslice.views.page import page_html
from rankslice.views.run_page import run_page
from rankslice.views.run_text import print_run, print_top, print_verdict, restart_lines
from rankslice.views.terminal import print_line, progress_bars, screen, talk

if TYPE_CHECKING:
    from rich.progress import Progress

    from rankslice.backend.runtime.sinks.results import Results


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
    draw: Callable[[FinishedRun, Callable[[int], None]], object] | None = None
    """Draws boxes or classes; returns what to print of it."""

    def leaves_screen(self, results: Path) -> bool:
        """Return whether nothing else goes to standard output, so that figures may."""
        files = (self.json, self.html, self.classes, results, self.lines, self.live)
        return STDOUT not in files


def run_and_show(
    prepared: PreparedRun,
    outputs: RunOutputs,
    command: tuple[str, ...],
    execute: Execute = run_job_here,
) -> None:
    """Run a job, show it, and write what is wanted of it."""
    frames = prepared.source.frames
    best = 0 if prepared.discards else outputs.best
    shows, drawn = outputs.leaves_screen(prepared.options.results), ""
    lines = None
    if outputs.lines is not None:
        lines = json_lines(prepared, outputs.lines, outputs.names, outputs.best)
    state = LiveState(prepared.plan, frames)
    view = LiveView(state) if outputs.live == TERMINAL else None
    samples = LiveLines(outputs.live) if outputs.live not in (None, TERMINAL) else None

    def show(ran: FinishedRun) -> None:
        bars.end()
        if shows and best:
            print_top(ran, outputs.names, best, screen)
        if shows:
            print_run(ran.summary, screen)
            for line in (*shape_lines(ran.results), *restart_lines(ran.restarts)):
                print_line(screen, on_one_line(line))
        if ran.drained_by:
            text = f"ended by {ran.drained_by}: every frame that had entered has come out"
            print_line(talk, text)
        if outputs.verify:
            bars.begin("comparing", len(ran.labels))

    def note_completed(count: int) -> None:
        state.completed = count
        bars.update(count)

    def take_sample(board: str, sample: Sample) -> None:
        for taker in (view, samples):
            if taker is not None:
                taker.take(board, sample)

    def note_drain(signal: str) -> None:
        print_line(talk, f"{signal}: no further frame enters; a second signal ends the job at once")

    def note_restart(restart: Restart) -> None:
        print_line(talk, on_one_line(str(restart)), "warning")
        state.follow(read_plan(restart.folder))

    with Bars() as bars:
        if view is not None:
            bars.show(view)
        elif not (outputs.lines == STDOUT and sys.stdout.isatty()):  # they are shown instead
            bars.begin("running", frames)
        finished = run(
            prepared,
            Callbacks(
                note_completed,
                take_sample,
                on_result=lines.write if lines is not None else None,
                on_enter=lines.entered.put if lines is not None else lambda entered: None,
                on_drain=note_drain,
                on_restart=note_restart,
                on_warning=lambda text: print_line(talk, on_one_line(text), "warning"),
                on_ran=show,
                on_verified=bars.update,
                on_search=lambda: bars.begin("finding the first difference", None),
            ),
            execute=execute,
            verify=outputs.verify,
            tolerance=outputs.tolerance,
            command=command,
        )
        if outputs.draw is not None:
            bars.begin("drawing", len(finished.labels))
            drawn = str(outputs.draw(finished, bars.update))
    for file in (lines, samples):
        if file is not None:
            file.close()
    if drawn and shows:
        print_line(screen, on_one_line(drawn))
    if outputs.json is not None:
        write_json(outputs.json, _run_json(finished, outputs, best))
    if outputs.classes is not None:
        write_output(outputs.classes, classes_csv(finished, outputs.names, best), "--classes")
    if outputs.html is not None:
        record = run_record(finished.job or prepared, finished.summary, command)
        write_output(outputs.html, page_html(run_page(record, finished.hardware)), "--html")
    _show_verdict(finished.summary.verify, shows=shows)


def _run_json(finished: FinishedRun, outputs: RunOutputs, best: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        **finished.summary.to_json(),
        "classes": classes_json(finished, outputs.names, best) if best else None,
        "shapes": shapes_json(finished.results),
    }
    if outputs.survives:
        found["restarts"] = [restart.to_json() for restart in finished.restarts]
    return found


def _show_verdict(verdict: Verification | None, *, shows: bool) -> None:
    if verdict is None:
        return
    if shows:
        print_verdict(verdict, screen)
    if not verdict.passed:
        # What follows the first clause explains it, and has been printed.
        reason = verdict.complaint.partition(";")[0] if shows else verdict.complaint
        raise RankSliceError(f"verify: {reason}")


def shapes_json(results: Results) -> dict[str, list[list[int]]]:
    """Return the shapes of each open output by its name: one for each frame."""
    return {
        spec.name: [list(shape) for shape in results.shapes(output)]
        for output, spec in enumerate(results.outputs)
        if spec.is_open
    }


def shape_lines(results: Results) -> Iterator[str]:
    """Yield for each open output which sizes it had: ``output boxes: 0 to 37 x 4``."""
    if not len(results):
        return
    for output, spec in enumerate(results.outputs):
        if spec.is_open:
            sizes = results.records[f"shape_{output}"]
            ends = zip(sizes.min(axis=0).tolist(), sizes.max(axis=0).tolist(), strict=True)
            texts = [str(low) if low == high else f"{low} to {high}" for low, high in ends]
            yield f"output {spec.name}: {' x '.join(texts)}"


class Bars:
    """A progress bar for each piece of work, one after the other: a context manager."""

    def __init__(self) -> None:
        self._shown = ExitStack()
        self._progress: Progress | None = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def begin(self, work: str, total: int | None) -> None:
        """Show the bar of a piece of work in place of the one before; ``None``: no known total."""
        self.end()
        self._progress = self._shown.enter_context(progress_bars())
        self._progress.add_task(work, total=total)

    def show(self, view: LiveView) -> None:
        self._shown.enter_context(view)

    def update(self, count: int) -> None:
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=count)

    def end(self) -> None:
        """Take the bar away; what is printed afterwards stays."""
        self._shown.close()
