"""What a run shows while it goes on and prints in the end, and which files it writes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.backend.runtime.frame_records import RecordForm
from rankslice.backend.runtime.keeper import is_streamed
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, TERMINAL, write_json, write_output
from rankslice.framework.wording import bytes_text, on_one_line
from rankslice.measurement.verify import Verification
from rankslice.session.build_folder import EDITED, is_edited, read_plan
from rankslice.session.callbacks import Callbacks, FinishedRun
from rankslice.session.fail_over import Restart
from rankslice.session.prepare import PreparedRun
from rankslice.session.recording_folder import prepare_recording
from rankslice.session.results_files import is_npz
from rankslice.session.run import Execute, run
from rankslice.session.run_record import run_record
from rankslice.session.shared_options import refuse_with
from rankslice.views.accuracy_of_run import AccuracyOfRun, accuracy_parts
from rankslice.views.boxes.labelled_images import LabelledFolder
from rankslice.views.boxes.reading import BoxOptions
from rankslice.views.boxes.video import LabelledVideo, is_video
from rankslice.views.classes import (
    check_classes,
    check_labels,
    classes_csv,
    classes_json,
    classes_parts,
    read_labels,
)
from rankslice.views.json_lines import JsonLines, check_streamed
from rankslice.views.live import LiveLines, LiveState, LiveView, check_live
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

if TYPE_CHECKING:
    from rankslice.commands.run.cli import Checks, Labelled, Shown

Draw: TypeAlias = Callable[[FinishedRun, Callable[[int], None]], str]
"""Draws what was found in the frames, and tells how many it has done; returns what to print."""


class RunOutputs:
    """What a run shows and writes besides its results; of each file ``None``: it is not wanted."""

    def __init__(
        self,
        checks: Checks,
        labelled: Labelled,
        shown: Shown,
        boxes: BoxOptions,
        json: Path | None,
        html: Path | None,
        *,
        survives: bool,
    ) -> None:
        """Take the options; read the labels, and check the files that grow during the run.

        ``survives``: another job may take over.
        """
        self.shown, self.json, self.html, self.survives = shown, json, html, survives
        self.verify, self.tolerance = checks.verify is not False, checks.tolerance
        self.boxes = boxes if boxes.boxes else None
        output = shown.output
        self.video = output if output is not None and is_video(output) else None
        self.lines = None if output in (None, self.video) else check_streamed(output)
        """Of JSON, for results as they come."""
        self.live = check_live(shown.live, self.lines) if shown.live is not None else None
        """For samples of boards as they come; :data:`.TERMINAL`: they are shown."""
        self.labelled = labelled
        labels = labelled.labels
        self.names = read_labels(labels) if labels is not None else ()
        """Of the classes; empty: unknown."""
        usual = 3 if (labels and self.boxes is None) or shown.classes else 0
        self.best = usual if shown.top is None else shown.top
        """How many classes of each frame are shown."""

    def leaves_screen(self, results: Path) -> bool:
        """Whether standard output is free for the figures."""
        files = (self.json, self.html, self.shown.classes, results, self.lines, self.live)
        return STDOUT not in files


def run_and_show(
    prepared: PreparedRun, execute: Execute, accuracy: AccuracyOfRun | None, *, outputs: RunOutputs
) -> None:
    """Run a prepared job, and show and write what is wanted of it; or show its command."""
    if prepared.discards:
        boxes = outputs.boxes is not None
        classes, truth = outputs.shown.classes, outputs.labelled.truth
        refuse_with(
            "--results /dev/null",
            verify=outputs.verify,
            boxes=boxes,
            classes=classes,
            truth=truth,
        )
    draw = _drawing(prepared, outputs)
    if prepared.options.record is not None:
        prepared, recorded = prepare_recording(prepared)
        print_line(talk, on_one_line(recorded), "note")
    if outputs.shown.dry_run:
        _refuse_to_show(prepared)
        print(shlex.join(prepared.command))
        return
    _print_notes(prepared)
    command = ("rankslice", *sys.argv[1:])
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
        if draw is not None:
            bars.begin("drawing", len(finished.labels))
            drawn = draw(finished, bars.update)
        if accuracy is not None:
            bars.begin("measuring accuracy", len(finished.labels))
            finished = replace(finished, accuracy=accuracy.measure(finished, bars.update))
    display.close()
    if finished.accuracy is not None and display.shows:
        show(screen, *accuracy_parts(finished.accuracy))
    if drawn and display.shows:
        print_line(screen, on_one_line(drawn))
    if outputs.json is not None:
        write_json(outputs.json, _run_json(finished, outputs, display.best))
    if outputs.shown.classes is not None:
        text = classes_csv(finished, outputs.names, display.best)
        write_output(outputs.shown.classes, text, "--classes")
    if outputs.html is not None:
        record = run_record(finished.job or prepared, finished.summary, command)
        write_output(outputs.html, page_html(run_page(record, finished.hardware)), "--html")
    _show_verdict(finished.summary.verify, shows=display.shows)


def _drawing(prepared: PreparedRun, outputs: RunOutputs) -> Draw | None:
    """Check what classes and boxes need, and return what draws them; ``None``: nothing is drawn."""
    shown, boxes, names, best = outputs.shown, outputs.boxes, outputs.names, outputs.best
    if best:
        values = {"--labels": outputs.labelled.labels, "--classes": shown.classes, "--top": best}
        check_classes(next(option for option, value in values.items() if value), prepared.plan)
    if outputs.labelled.labels is not None and (boxes is None or best):
        check_labels(outputs.labelled.labels, names, prepared.plan)
    if outputs.video is not None:
        if boxes is None:
            check_classes("--output", prepared.plan)
        return LabelledVideo(prepared, outputs.video, boxes, names, best).write
    return LabelledFolder(prepared, boxes, names).write if boxes is not None else None


def _refuse_to_show(prepared: PreparedRun) -> None:
    """Raise if the frames come from, or the results go to, what ranks cannot reach themselves."""
    results = prepared.options.results
    if is_streamed(prepared.options.inputs):
        place, verb, advice = "standard input", "read", "give a file with --input"
    elif prepared.options.stream:
        place, verb, advice = "--output", "written", "leave it out"
    elif results == STDOUT or is_npz(results):
        place, verb, advice = str(results), "written", "leave out --results, or name a .bin"
    else:
        return
    problem = f"can be {verb} only by 'rankslice run', not by the mpirun line"
    raise RankSliceError(Mistake(place, problem, advice))


def _print_notes(prepared: PreparedRun) -> None:
    if is_edited(prepared.folder, prepared.plan):
        print_line(talk, EDITED, "note")
    if note := prepared.source.note():
        print_line(talk, on_one_line(note))
    may_grow = prepared.options.unlimited or not prepared.source.reads_files
    if prepared.is_endless and may_grow and not prepared.discards:
        outputs = prepared.plan.job.outputs
        most = RecordForm(outputs).head.size + sum(spec.nbytes for spec in outputs)
        grows = f"each frame adds {bytes_text(most)} to the results"
        print_line(talk, f"{grows}; --results /dev/null keeps none", "note")


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
    if finished.accuracy is not None:
        record["accuracy"] = finished.accuracy.to_json()
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
