"""The options of ``rankslice run``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from rankslice.backend.runtime.sources import usage
from rankslice.commands.app import command
from rankslice.commands.options import (
    Arrivals,
    BuildFolder,
    Fps,
    FrameTimeout,
    Html,
    ImageLayout,
    Json,
    Layout,
    Mean,
    Mpirun,
    NoDirect,
    Scale,
    Size,
    SshConfig,
    Standby,
    StartTimeout,
    Survive,
    Window,
    parse_preprocessing,
    refuse_shared_files,
    refuse_with,
    refuse_without,
    writes,
)
from rankslice.commands.output import print_line, talk
from rankslice.commands.run.bare_options import TYPED, RunCommand, Verify
from rankslice.commands.run.boxes.reading import (
    LEAST_SCORE,
    MOST_OVERLAP,
    BoxForm,
    BoxUnit,
    Reading,
)
from rankslice.commands.switching import (
    NormalAfter,
    NormalBelow,
    NormalFps,
    SurgeAbove,
    SurgeQueue,
    Switch,
    SwitchTo,
)
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import CLASSES, STDOUT
from rankslice.framework.wording import on_one_line
from rankslice.session.arrival_times import USUAL, check_switching

if TYPE_CHECKING:
    from rankslice.session.run import PreparedRun


class _Overflow(str, Enum):
    fail = "fail"
    drop = "drop"


@command(
    "out --frames 200 --verify",
    "out --input photos/ --mean 127.5 --scale 0.0078 --labels labels.txt",
    "out --input photos/ --boxes boxes,scores,classes",
    "out --record recorded --record-frames 3",
    cls=RunCommand,
)
def run(
    context: typer.Context,
    folder: BuildFolder,
    input: Annotated[list[str] | None, Option(help=f"Where frames come from: {usage()}.")] = None,
    frames: Annotated[
        int | None,
        Option(
            min=0,
            metavar="N|unlimited",
            help="Number of frames (default: all; 100 for random input). 'unlimited': until"
            " Ctrl-C or SIGTERM; frames that have entered are still completed.",
        ),
    ] = None,
    unlimited: Annotated[bool, Option("--unlimited", hidden=True)] = False,
    seed: Annotated[int, Option(min=0, help="Random seed.")] = 0,
    fps: Fps = None,
    period_ms: Annotated[
        float | None,
        Option(min=1e-6, max=1e6, help="Frame period of the source, instead of --fps."),
    ] = None,
    pull: Annotated[
        bool,
        Option("--pull", help="Read a video as fast as possible, not at its own frame rate."),
    ] = False,
    arrivals: Arrivals = None,
    overflow: Annotated[
        _Overflow, Option(help="What to do when frames arrive faster than they are processed.")
    ] = _Overflow.fail,
    queue: Annotated[
        int | None,
        Option(
            min=1,
            help="Maximum number of waiting frames, if they arrive on a schedule (default: those"
            " of one second).",
        ),
    ] = None,
    switch: SwitchTo = Switch.auto,
    normal_fps: NormalFps = None,
    surge_queue: SurgeQueue = None,
    surge_above: SurgeAbove = USUAL.surge_above,
    normal_below: NormalBelow = USUAL.normal_below,
    normal_after: NormalAfter = USUAL.normal_after_s,
    latency: Annotated[
        bool, Option("--latency", help="Wake before frames are due: lower latency, more CPU time.")
    ] = False,
    no_direct: NoDirect = False,
    skip_failed: Annotated[
        bool,
        Option(
            "--skip-failed",
            help="Leave out frames on which an engine fails or which cannot be read, and tell"
            " them; by default, such a frame ends the run.",
        ),
    ] = False,
    frame_timeout: FrameTimeout = None,
    start_timeout: StartTimeout = None,
    window: Window = None,
    verify: Annotated[
        Verify | None,
        Option(
            metavar="[exact]",
            help="Compare the results with the unsliced model's; 'exact': bit by bit, without"
            " engine optimisation.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        Option(min=0, help="With --verify: allowed difference as a share of the output's range."),
    ] = None,
    layout: ImageLayout = Layout.nchw,
    size: Size = None,
    keep_size: Annotated[
        bool,
        Option(
            "--keep-size",
            help="Do not resize images; for models with open height and width.",
        ),
    ] = False,
    mean: Mean = None,
    scale: Scale = None,
    labels: Annotated[
        Path | None,
        Option(readable=False, help="Class names: a text file with one per line, or .json."),
    ] = None,
    top: Annotated[
        int | None,
        Option(
            min=0, help="Number of top classes per frame (default: 3 with --labels or --classes)."
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        Option(
            callback=writes(CLASSES),
            readable=False,
            help="Write the top classes of all frames as CSV; '-': standard output.",
        ),
    ] = None,
    boxes: Annotated[
        str | None,
        Option(
            metavar="OUTPUT[,SCORES,CLASSES[,COUNT]]",
            help="Draw boxes on the images, and write coco.json: outputs with boxes, scores and"
            " classes, or one output with rows of all three.",
        ),
    ] = None,
    box_form: Annotated[
        BoxForm | None,
        Option(
            help="With --boxes: meaning of a box's four numbers; cx, cy: its centre (default:"
            " xyxy, or cxcywh with --nms)."
        ),
    ] = None,
    box_unit: Annotated[
        BoxUnit,
        Option(
            help="With --boxes: pixels of the model input, or shares of its width and height; auto:"
            " shares if no coordinate exceeds 2."
        ),
    ] = BoxUnit.auto,
    min_score: Annotated[
        float, Option(min=0, help="With --boxes: lowest score of a box.")
    ] = LEAST_SCORE,
    nms: Annotated[
        float | None,
        Option(
            min=0,
            max=1,
            metavar="[IOU]",
            help="With --boxes: the output is a raw YOLO head; apply non-maximum suppression with"
            f" this overlap ({MOST_OVERLAP}).",
        ),
    ] = None,
    boxes_to: Annotated[
        Path,
        Option(
            readable=False,
            help="With --boxes: folder to create, with labelled images and coco.json.",
        ),
    ] = Path("labelled"),
    results: Annotated[
        Path | None,
        Option(
            callback=writes(is_checked_later=True),
            readable=False,
            help="Output file: .bin, or .npz for numpy (default: OUT/results.bin). It grows with"
            " each frame; '/dev/null': keep nothing.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Option(
            callback=writes(is_checked_later=True),
            readable=False,
            metavar="FILE.jsonl|-|FILE.mp4",
            help="Write each result as soon as it is available, as a JSON line; '-': standard"
            " output. FILE.npz: same as --results. FILE.mp4, FILE.avi: the input video with"
            " its top classes or boxes.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        Option(
            readable=False,
            metavar="DIR",
            help="Record the tensors that ranks exchange in the first frames, in a new folder for"
            " 'rankslice replay'.",
        ),
    ] = None,
    record_frames: Annotated[
        int, Option(min=1, max=1_000_000, help="With --record: number of frames.")
    ] = 10,
    live: Annotated[
        Path | None,
        Option(
            callback=writes(is_checked_later=True),
            readable=False,
            metavar="[FILE.jsonl|-]",
            help="Show rate, latency, and the state of ranks and boards once per second."
            " FILE.jsonl, or '-' for standard output: write them as JSON lines.",
        ),
    ] = None,
    survive: Survive = False,
    standby: Standby = False,
    mpirun: Mpirun = None,
    ssh_config: SshConfig = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the mpirun command without running it.")
    ] = False,
    json_file: Json = None,
    html: Html = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.backend.runtime.options import RunOptions
    from rankslice.commands.run.boxes.boxes import prepare_boxes, write_boxes
    from rankslice.commands.run.boxes.video import is_video, prepare_video, write_video
    from rankslice.commands.run.classes import check_classes, check_labels
    from rankslice.commands.run.json_lines import check_streamed, growth_text
    from rankslice.commands.run.live import check_live
    from rankslice.commands.run.open import fail_over_of
    from rankslice.commands.run.show import read_labels
    from rankslice.commands.run.show_outputs import RunOutputs, run_and_show
    from rankslice.session.build_folder import EDITED, is_edited
    from rankslice.session.recording_folder import prepare_recording
    from rankslice.session.results_files import is_npz
    from rankslice.session.run import Execute, prepare, run_job_here

    if tolerance is not None and verify is not Verify.deployed:
        raise RankSliceError("--tolerance needs --verify, and not --verify exact")
    if fps is not None:
        refuse_with("--fps", period_ms=period_ms, arrivals=arrivals)
    if arrivals is not None:
        refuse_with("--arrivals", period_ms=period_ms)
    if pull:
        refuse_with("--pull", fps=fps, period_ms=period_ms, arrivals=arrivals)
    if unlimited:
        refuse_with("--frames unlimited", frames=frames)
    if record is None:
        refuse_without(context, "--record", "record_frames")
    elif skip_failed:
        refuse_with("--record", skip_failed=skip_failed)
    if dry_run:
        refuse_with("--dry-run", record=record)
    if boxes is None:
        refuse_without(context, "--boxes", "box_form", "box_unit", "min_score", "nms", "boxes_to")
    if output is not None and is_npz(output):
        refuse_with("--output FILE.npz", results=results)
        results, output = output, None
    video = output if output is not None and is_video(output) else None
    target = check_streamed(output) if output is not None and video is None else None
    shown_at = check_live(live, target) if live is not None else None
    form = box_form or (BoxForm.xyxy if nms is None else BoxForm.cxcywh)
    reading = Reading(boxes, form, box_unit, min_score, nms) if boxes else None
    names = read_labels(labels) if labels is not None else ()
    best = top if top is not None else 3 if (labels and boxes is None) or classes else 0
    options = RunOptions(
        inputs=tuple(input or ("random",)),
        frames=frames,
        unlimited=unlimited,
        stream=target is not None,
        seed=seed,
        fps=1e3 / period_ms if period_ms is not None else fps,
        pull=pull,
        arrivals=arrivals,
        overflow=overflow.value,
        queue=queue,
        switch=switch.value,
        normal_fps=normal_fps,
        surge_queue=surge_queue,
        surge_above=surge_above,
        normal_below=normal_below,
        normal_after_s=normal_after,
        latency=latency,
        direct=not no_direct,
        skip_failed=skip_failed,
        frame_timeout_s=frame_timeout,
        start_timeout_s=start_timeout,
        window=window,
        exact=verify is Verify.exact,
        record=record,
        record_frames=record_frames,
        preprocessing=parse_preprocessing(layout, size, mean, scale, keep_size=keep_size),
    )
    check_switching(options)
    outputs = RunOutputs(
        verify=verify is not None,
        tolerance=tolerance,
        lines=target,
        live=shown_at,
        json=json_file,
        html=html,
        classes=classes,
        names=names,
        best=best,
        survives=survive,
    )
    execute: Execute = run_job_here
    if survive:
        refuse_with("--survive", **{name: context.params[name] for name in _NOT_SURVIVING})
        from rankslice.session.fed_run import prepare_fed, run_fed

        prepared = prepare_fed(folder, options, results)
        execute = partial(
            run_fed,
            mpirun=mpirun,
            ssh_config=ssh_config,
            fail_over=fail_over_of(survive=survive, standby=standby),
        )
    else:
        refuse_without(context, "--survive", "standby")
        prepared = prepare(
            folder,
            options,
            results=results,
            mpirun=mpirun,
            ssh_config=ssh_config,
            by_hand=dry_run,
        )
    if prepared.discards:
        refuse_with("--results /dev/null", verify=verify, boxes=boxes, classes=classes)
    if best:
        given = {"--labels": labels, "--classes": classes, "--top": best}
        check_classes(next(option for option, value in given.items() if value), prepared.plan)
    if labels is not None and (boxes is None or best):
        check_labels(labels, names, prepared.plan)
    if video is not None:
        if reading is None:
            check_classes("--output", prepared.plan)
        movie = prepare_video(prepared, video, reading, names, best)
        outputs = replace(outputs, draw=partial(write_video, movie))
    elif reading:
        work = prepare_boxes(prepared, reading, boxes_to, names)
        outputs = replace(outputs, draw=partial(write_boxes, work))
    if record is not None:
        prepared, recorded = prepare_recording(prepared)
        print_line(talk, on_one_line(recorded), "note")
    if dry_run:
        _refuse_to_show(prepared)
        print(shlex.join(prepared.command))
        return
    if is_edited(prepared.folder, prepared.plan):
        print_line(talk, EDITED, "note")
    if note := prepared.source.note():
        print_line(talk, on_one_line(note))
    may_grow = unlimited or not prepared.source.reads_files
    if prepared.is_endless and may_grow and not prepared.discards:
        print_line(talk, growth_text(prepared), "note")
    run_and_show(prepared, outputs, ("rankslice", "run", *context.meta[TYPED]), execute)


_NOT_SURVIVING = ("arrivals", "normal_fps", "surge_queue", "latency", "dry_run")
"""Options that have no meaning with ``--survive``: frames are read and timed here, a job that
survives has one route, and several mpirun lines."""


def _refuse_to_show(prepared: PreparedRun) -> None:
    """Raise if the frames come from, or the results go to, what ranks cannot reach themselves."""
    from rankslice.backend.runtime.keeper import is_streamed
    from rankslice.session.results_files import is_npz

    if is_streamed(prepared.options.inputs):
        found = "can be read only by 'rankslice run', not by the mpirun line"
        raise RankSliceError(Mistake("standard input", found, "give a file with --input"))
    if prepared.options.stream:
        found = "can be written only by 'rankslice run', not by the mpirun line"
        raise RankSliceError(Mistake("--output", found, "leave it out"))
    results = prepared.options.results
    if results == STDOUT or is_npz(results):
        found = "can be written only by 'rankslice run', not by the mpirun line"
        raise RankSliceError(Mistake(str(results), found, "leave out --results, or name a .bin"))
