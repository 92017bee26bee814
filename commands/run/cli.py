"""The options of ``rankslice run``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankslice.backend.runtime.options import IMAGE_OPTIONS, RunOptions
from rankslice.commands.command import command, function
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import CLASSES, TERMINAL
from rankslice.framework.option_records import Writes, offered, option
from rankslice.session.shared_options import (
    BuildFolder,
    Html,
    Json,
    Launching,
    Surviving,
    refuse_with,
)
from rankslice.views.boxes.reading import BoxOptions

if TYPE_CHECKING:
    from rankslice.session.pipeline import Pipeline
    from rankslice.session.run import FinishedRun

_NAMES_FILE = r"-|(?!-).*[./].*"
"""What may be a value of ``--live``; other words, as of a build folder, are none."""


def _verification(text: str) -> bool | str:
    if text == "deployed":
        return True
    if text != "exact":
        raise ValueError(f"{text!r} is not 'exact'")
    return text


@dataclass(frozen=True, slots=True)
class Checks:
    """What a run is compared with, and where its results go."""

    period_ms: float | None = option(
        None, "Frame period of the source, instead of --fps.", float, least=1e-6, most=1e6
    )
    verify: bool | str = option(
        False,
        "Compare the results with the unsliced model's; 'exact': bit by bit, without engine"
        " optimisation.",
        _verification,
        metavar="[exact]",
        bare=("deployed", "deployed|exact"),
    )
    tolerance: float | None = option(
        None,
        "With --verify: allowed difference as a share of the output's range.",
        float,
        least=0,
        needs="verify",
    )
    results: Path | None = option(
        None,
        "Output file: .bin, or .npz for numpy (default: OUT/results.bin). It grows with each"
        " frame; '/dev/null': keep nothing.",
        Path,
        writes=Writes(is_checked=False),
    )

    def of_run(self, options: RunOptions) -> RunOptions:
        """Return the options that the ranks get.

        Raises:
            RankSliceError: a tolerance is given where each bit is compared.
        """
        exact = options.exact or self.verify == "exact"
        if exact and self.tolerance is not None:
            raise RankSliceError(Mistake("tolerance", "needs verify without exact", "leave it out"))
        fps = 1e3 / self.period_ms if self.period_ms is not None else options.fps
        return replace(options, exact=exact, fps=fps)


@dataclass(frozen=True, slots=True)
class Labelled:
    """What is known of what the frames show."""

    labels: Path | None = option(
        None, "Class names: a text file with one per line, or .json.", Path
    )
    truth: Path | None = option(
        None,
        "Measure accuracy on labelled images: a CSV file (image,class), a folder with a folder of"
        " images for each class, or, with --boxes, annotations of COCO (.json) or Pascal VOC"
        " (folder of .xml).",
        Path,
    )


OfTheRun = Annotated[
    RunOptions,
    offered(
        exact={"is_for_programs": True},
        frames={
            "metavar": "N|unlimited",
            "help": "Number of frames (default: all; 100 for random input). 'unlimited': until"
            " Ctrl-C or SIGTERM; frames that have entered are still completed.",
        },
        unlimited={
            "is_internal": False,
            "typed_as": ("--frames", "unlimited"),
            "excludes": ("frames",),
        },
    ),
]


@function
def run(
    folder: BuildFolder,
    *,
    options: OfTheRun,
    checks: Checks,
    launching: Launching,
    surviving: Surviving,
    labelled: Labelled,
    boxes: Annotated[BoxOptions, offered("boxes", "box_form", "box_unit", "nms", "anchors")],
    on_prepared: Callable[..., Any] | None = None,
    by_hand: bool = False,
) -> FinishedRun:
    """Run the job of a build folder on frames from files; return its figures and results.

    A program that has the frames itself uses :func:`rankslice.open`. ``on_prepared`` is called
    with the prepared run, what executes it and what measures its accuracy, and runs it instead;
    ``by_hand``: its command is to be shown.

    Raises:
        RankSliceError: something does not fit, or the job failed; the results of finished frames
            are kept.
    """
    from rankslice.session.recording_folder import prepare_recording
    from rankslice.session.run import prepare, run as run_prepared, run_job_here

    options, execute = checks.of_run(options), run_job_here
    if labelled.truth is not None:
        from rankslice.views.accuracy_of_run import labelled_input

        options = labelled_input(options, labelled.truth)
    if surviving.survive:
        from rankslice.session.fed_run import prepare_fed, run_fed

        prepared = prepare_fed(folder, options, launching, results=checks.results)
        execute = partial(run_fed, surviving=surviving)
    else:
        prepared = prepare(folder, options, launching, results=checks.results, by_hand=by_hand)
    accuracy = None
    if labelled.truth is not None:
        from rankslice.views.accuracy_of_run import AccuracyOfRun
        from rankslice.views.classes import read_labels

        names = () if labelled.labels is None else read_labels(labelled.labels)
        accuracy = AccuracyOfRun(prepared, labelled.truth, names, boxes)
    if on_prepared is not None:
        shown: FinishedRun = on_prepared(prepared, execute, accuracy)
        return shown
    if options.record is not None:
        prepared, _ = prepare_recording(prepared)
    verify = checks.verify is not False
    finished = run_prepared(prepared, execute=execute, verify=verify, tolerance=checks.tolerance)
    if accuracy is not None:
        finished = replace(finished, accuracy=accuracy.measure(finished))
    return finished


@function
def open(
    folder: Path,
    *,
    options: Annotated[
        RunOptions,
        offered(
            *("window", "queue", "exact", "start_timeout_s", "frame_timeout_s", *IMAGE_OPTIONS),
            queue={"help": "Maximum number of frames that wait besides (default: the window)."},
        ),
    ],
    launching: Launching,
    surviving: Annotated[Surviving, offered(survive={"excludes": ()})],
    on_restart: Callable[..., None] = lambda restart: None,
    on_warning: Callable[[str], None] = lambda text: None,
    wait: bool = True,
) -> Pipeline:
    """Start the job of a build folder; return it when all ranks are ready for frame 0.

    ``on_restart`` is called with a :class:`.Restart` when another job takes over, and
    ``on_warning``, in a thread, with which of the jobs that wait has failed, and why. Without
    ``wait`` the job is returned at once, and :meth:`Pipeline.wait_until_ready` waits.

    Example:
        >>> with rankslice.open("out") as pipeline:
        ...     result = pipeline(image)

    Raises:
        RankSliceError: the folder is no build folder, a board cannot run its package, or the job
            does not start.
    """
    from rankslice.session.callbacks import Callbacks
    from rankslice.session.pipeline import open_pipeline

    return open_pipeline(
        folder,
        options,
        launching,
        surviving,
        callbacks=Callbacks(on_restart=on_restart, on_warning=on_warning),
        wait=wait,
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown and written of a run besides its results."""

    top: int | None = option(
        None,
        "Number of top classes per frame (default: 3 with --labels or --classes).",
        int,
        least=0,
    )
    classes: Path | None = option(
        None,
        "Write the top classes of all frames as CSV; '-': standard output.",
        Path,
        writes=Writes(CLASSES),
    )
    output: Path | None = option(
        None,
        "Write each result as soon as it is available, as a JSON line; '-': standard output."
        " FILE.npz: same as --results. FILE.mp4, FILE.avi: the input video with its top classes"
        " or boxes.",
        Path,
        writes=Writes(is_checked=False),
        metavar="FILE.jsonl|-|FILE.mp4",
    )
    live: Path | None = option(
        None,
        "Show rate, latency, and the state of ranks and boards once per second. FILE.jsonl, or"
        " '-' for standard output: write them as JSON lines.",
        Path,
        writes=Writes(is_checked=False),
        metavar="[FILE.jsonl|-]",
        bare=(str(TERMINAL), _NAMES_FILE),
    )
    dry_run: bool = option(
        False, "Show the mpirun command without running it.", excludes=("record",)
    )


@command(
    "run",
    "out --frames 200 --verify",
    "out --input photos/ --mean 127.5 --scale 0.0078 --labels labels.txt",
    "out --input photos/ --boxes boxes,scores,classes",
    "out --truth photos/ --preprocess torch --size 256 --resize crop",
    "out --record recorded --record-frames 3",
    calls=run,
)
def show_run(
    call: Callable[..., FinishedRun],
    options: OfTheRun,
    checks: Checks,
    surviving: Surviving,
    labelled: Labelled,
    shown: Shown,
    boxes: BoxOptions,
    json: Json = None,
    html: Html = None,
) -> None:
    from rankslice.commands.run.show import RunOutputs, run_and_show
    from rankslice.session.results_files import is_npz

    if shown.output is not None and is_npz(shown.output):
        refuse_with("--output FILE.npz", results=checks.results)
        checks, shown = replace(checks, results=shown.output), replace(shown, output=None)
    outputs = RunOutputs(checks, labelled, shown, boxes, json, html, survives=surviving.survive)
    call(
        options=replace(options, stream=outputs.lines is not None),
        checks=checks,
        by_hand=shown.dry_run,
        on_prepared=partial(run_and_show, outputs=outputs),
    )
