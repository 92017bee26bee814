"""The command line: each command is a thin shell over one library call."""

from __future__ import annotations

import io
import json
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rankslice import __version__
from rankslice.framework.errors import Mistake, RankSliceError

if TYPE_CHECKING:
    from rankslice.framework.commands.planning import MakeMapping

__all__ = ["app", "main"]

app = typer.Typer(
    name="rankslice",
    help="Run neural networks across the accelerators of several boards, one MPI rank per slice.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
_talk = Console(stderr=True, highlight=False)
_out = Console(highlight=False)

_MOST_DIGITS = 18
"""Of a size: model files hold 64-bit integers."""


def _writable(file: Path | None) -> Path | None:
    """Refuse a file that cannot be written before the work is done, and not after it."""
    if file is None or file == Path("-"):
        return file
    if file.is_dir():
        raise RankSliceError(Mistake(str(file), "is a folder", "expected a file to write"))
    if not file.absolute().parent.is_dir():
        raise RankSliceError(Mistake(str(file.parent), "no such folder", "make it first"))
    return file


# readable=False, here and below: what cannot be read is told like any other mistake, not by typer.
_Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Write the result as JSON; '-' for stdout.",
        callback=_writable,
        readable=False,
    ),
]


_SshConfig = Annotated[
    Path | None,
    typer.Option(readable=False, help="Configuration for ssh (default: ssh's own)."),
]


class _Layout(str, Enum):
    nchw = "nchw"
    nhwc = "nhwc"


class _Quantize(str, Enum):
    float32 = "float32"
    float16 = "float16"
    dynamic = "dynamic"
    int8 = "int8"


class _Verify(str, Enum):
    deployed = "deployed"
    exact = "exact"


class _Accelerator(str, Enum):
    gpu = "gpu"
    npu = "npu"


class _Method(str, Enum):
    exact = "exact"
    nsga2 = "nsga2"
    exhaustive = "exhaustive"


class _Evaluate(str, Enum):
    model = "model"
    simulator = "simulator"
    run = "run"


class _Overflow(str, Enum):
    fail = "fail"
    drop = "drop"


def main() -> NoReturn:
    """Run the command line; exit 0 on success, 1 if input or run failed, 2 on misuse."""
    # So that a terminated build removes what it has half written.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # A name that the terminal cannot show is no reason to fail.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(_with_verify_value(sys.argv[1:]))
    except RankSliceError as error:
        for mistake in error.mistakes:
            _talk.print(f"[red]error:[/red] {escape(str(mistake))}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        _talk.print("interrupted")
        sys.exit(1)
    sys.exit(0)


def _with_verify_value(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a value after each ``--verify``, which may stand alone."""
    spelled = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        is_bare = argument == "--verify" and following not in [mode.value for mode in _Verify]
        spelled += [argument, _Verify.deployed.value] if is_bare else [argument]
    return spelled


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command(
    epilog="Examples: rankslice inspect models/digits.onnx --cuts 20"
    " | rankslice inspect models/digits.onnx --mapping mappings/digits-two-ranks.json"
    " --svg digits.svg | rankslice inspect out --svg out.svg"
)
def inspect(
    model: Annotated[
        Path,
        typer.Argument(
            readable=False,
            help="An .onnx, .tflite, .keras or .h5 model, or a folder made by 'build'.",
        ),
    ],
    shape: Annotated[
        list[str] | None, typer.Option(help="Size of an open input: IN=1,3,224,224.")
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(readable=False, help="Also show what each rank of this mapping would do."),
    ] = None,
    platform: Annotated[
        str | None, typer.Option(help="The mapping's boards, as for 'build' (default: 'local').")
    ] = None,
    cuts: Annotated[int, typer.Option(min=0, help="Most cuts shown, spread over the model.")] = 9,
    svg: Annotated[
        Path | None,
        typer.Option(
            callback=_writable,
            readable=False,
            help="Draw the model, by rank if there is a plan; '-' for stdout.",
        ),
    ] = None,
    object: Annotated[
        bool,
        typer.Option(
            "--object", help="Instead: the tables of a .tflite file, as they stand there."
        ),
    ] = False,
    internals: Annotated[
        bool,
        typer.Option(
            "--internals", help="Instead: what LiteRT makes of a .tflite file, step by step."
        ),
    ] = False,
    delegate: Annotated[
        str | None,
        typer.Option(
            metavar="LIB", help="With --internals: a delegate library (default: XNNPACK)."
        ),
    ] = None,
    accelerator: Annotated[
        _Accelerator | None,
        typer.Option(help="With --internals: compile for LiteRT's GPU or NPU accelerator."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the delegate or accelerator."),
    ] = None,
    json_file: _Json = None,
) -> None:
    """Show a model's layers, what they cost, where it can be cut, and what a mapping gives."""
    others = {"shape": shape, "mapping": mapping, "platform": platform, "svg": svg}
    of_internals = {"delegate": delegate, "accelerator": accelerator, "option": option}
    if object:
        _refuse_with("--object", internals=internals, **others, **of_internals)
        _inspect_object(model, json_file)
        return
    if internals:
        _refuse_with("--internals", **others)
        _inspect_internals(model, delegate, accelerator, option or [], json_file)
        return
    if any(of_internals.values()):
        raise RankSliceError("--delegate, --accelerator and --option need --internals")
    from rankslice.framework.commands.inspect import inspect_model
    from rankslice.framework.commands.inspection_json import inspection_to_json
    from rankslice.framework.commands.picture import picture_of
    from rankslice.framework.commands.show_inspection import print_inspection

    if svg == json_file == Path("-"):
        raise typer.BadParameter("one of --svg and --json can go to stdout", param_hint="--svg")
    inspection = inspect_model(model, _shapes(shape), mapping, platform)
    if svg is not None:
        _write(svg, picture_of(inspection), "--svg")
    if json_file is not None:
        _write_json(json_file, inspection_to_json(inspection))
    if Path("-") not in (svg, json_file):
        print_inspection(inspection, _out, cuts)


@app.command(
    epilog="Example: rankslice build models/digits.onnx --mapping mappings/digits-two-ranks.json"
    " --platform local --out out"
)
def build(
    model: Annotated[
        Path, typer.Argument(readable=False, help="An .onnx, .tflite, .keras or .h5 model.")
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(readable=False, help="JSON: which layers go to which accelerator."),
    ] = None,
    cuts: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]",
            help="Instead of a mapping: numbers of the layers with which further slices begin.",
        ),
    ] = None,
    platform: Annotated[
        str, typer.Option(help="YAML or .txt: the boards; 'local': this machine.")
    ] = "local",
    out: Annotated[Path, typer.Option(readable=False, help="Folder to make.")] = Path("out"),
    shape: Annotated[
        list[str] | None, typer.Option(help="Size of an open input: IN=1,3,224,224.")
    ] = None,
    share_cores: Annotated[
        bool, typer.Option("--share-cores", help="Let several ranks have the same cores.")
    ] = False,
    source_board: Annotated[
        str | None, typer.Option(help="Board where frames enter (default: the first layer's).")
    ] = None,
    literally: Annotated[
        bool,
        typer.Option(
            "--literally",
            help="Keras: leave normalisations where the mapping says, apart from the layers into"
            " which converting would merge them.",
        ),
    ] = False,
    quantize: Annotated[
        _Quantize, typer.Option(help="Types of numbers in a Keras model's sub-models.")
    ] = _Quantize.float32,
    representative: Annotated[
        Path | None,
        typer.Option(
            readable=False, help="For int8: FILE.npz or a folder of images like those to come."
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="HxW: resize images of --representative, as 'run' does.")
    ] = None,
    mean: Annotated[str, typer.Option(help="Subtracted from their pixels: M or R,G,B.")] = "0",
    scale: Annotated[
        str, typer.Option(help="Multiplies the difference: S or R,G,B.")
    ] = "0.00392156862745098",
    force: Annotated[bool, typer.Option("--force", help="Replace an older build folder.")] = False,
    archive: Annotated[
        bool, typer.Option("--archive", help="Also write each package as a .tar.")
    ] = False,
    wheels: Annotated[
        str,
        typer.Option(
            metavar="DIR|download",
            help="Put what boards install into their packages, from a folder or an index.",
        ),
    ] = "",
    json_file: _Json = None,
) -> None:
    """Slice a model: sub-models, tables, rankfile, driver and a package per board."""
    from rankslice.backend.runtime.images import Preprocessing
    from rankslice.framework.commands.build import build as build_folder
    from rankslice.framework.commands.converting import Quantisation
    from rankslice.framework.commands.show import print_build
    from rankslice.framework.plan import plan_to_json

    shapes = _shapes(shape)
    preprocessing = Preprocessing(
        _Layout.nhwc.value, _size(size), _numbers("--mean", mean), _numbers("--scale", scale)
    )
    where = _mapping(mapping, cuts, share_cores, lambda: _ask_for_cuts(model, shapes))
    with _talk.status("reading") as status:
        result = build_folder(
            model,
            where,
            platform,
            out,
            quantisation=Quantisation(quantize.value, representative, preprocessing),
            shapes=shapes,
            share_cores=share_cores,
            source_board=source_board,
            literally=literally,
            force=force,
            archive=archive,
            wheels=wheels,
            on_step=status.update,
        )
    for warning in result.warnings:
        _talk.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)
    if json_file is not None:
        _write_json(json_file, json.loads(plan_to_json(result.plan)))
    if json_file != Path("-"):
        print_build(result, _out)


@app.command(
    epilog="Examples: rankslice run out --frames 200 --verify"
    " | rankslice run out --input photos/ --mean 127.5 --scale 0.0078 --labels labels.txt"
)
def run(
    folder: Annotated[
        Path, typer.Argument(metavar="OUT", readable=False, help="A folder made by 'build'.")
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(help="random, FILE.npz, or image files and folders."),
    ] = None,
    frames: Annotated[
        int | None, typer.Option(min=0, help="How many frames (default: all; 100 if random).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random frames.")] = 0,
    fps: Annotated[
        float | None,
        typer.Option(
            min=1e-3, max=1e9, help="Frames arrive at this rate (default: as fast as taken)."
        ),
    ] = None,
    period_ms: Annotated[
        float | None,
        typer.Option(min=1e-6, max=1e6, help="The same as a time: frames arrive every X ms."),
    ] = None,
    overflow: Annotated[
        _Overflow, typer.Option(help="What to do when --fps is faster than the pipeline.")
    ] = _Overflow.fail,
    queue: Annotated[
        int | None,
        typer.Option(min=1, help="Frames that may wait with --fps (default: those of a second)."),
    ] = None,
    latency: Annotated[
        bool,
        typer.Option("--latency", help="See messages sooner, at the price of processor time."),
    ] = False,
    frame_timeout: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds a segment may take (default: 30, or 20 x the slowest)."),
    ] = None,
    start_timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds until frame 0 (default: 120).")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Most frames inside (default: longest path + 1)."),
    ] = None,
    verify: Annotated[
        _Verify | None,
        typer.Option(
            metavar="[exact]",
            help="Compare with the unsliced model; 'exact': every bit, unoptimised engines.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="With --verify: share of the range by which results may differ."),
    ] = None,
    layout: Annotated[_Layout, typer.Option(help="Of image inputs.")] = _Layout.nchw,
    size: Annotated[
        str | None, typer.Option(help="HxW: resize images to this, then cut the middle out.")
    ] = None,
    mean: Annotated[str, typer.Option(help="Subtracted from pixels (0-255): M or R,G,B.")] = "0",
    scale: Annotated[
        str, typer.Option(help="Multiplies the difference: S or R,G,B.")
    ] = "0.00392156862745098",
    labels: Annotated[
        Path | None,
        typer.Option(readable=False, help="Class names: a text file, one per line, or .json."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=0, help="Best classes shown per frame (default: 3 with --labels)."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(readable=False, help="File for the outputs (default: OUT/results.bin)."),
    ] = None,
    mpirun: Annotated[
        Path | None, typer.Option(readable=False, help="Open MPI's mpirun to use.")
    ] = None,
    ssh_config: _SshConfig = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the mpirun line.")] = False,
    json_file: _Json = None,
) -> None:
    """Run the slices as a pipeline and tell how fast, how steady, and what limits it."""
    from rankslice.backend.runtime.images import Preprocessing
    from rankslice.backend.runtime.options import RunOptions
    from rankslice.framework.commands.run import prepare
    from rankslice.framework.commands.run import run as run_folder
    from rankslice.framework.commands.show import print_run, print_top, read_labels

    if tolerance is not None and verify is not _Verify.deployed:
        raise RankSliceError("--tolerance needs --verify, and not --verify exact")
    if fps is not None and period_ms is not None:
        _refuse_with("--fps", period_ms=period_ms)
    names = read_labels(labels) if labels is not None else ()
    best = top if top is not None else 3 if labels is not None else 0
    options = RunOptions(
        inputs=tuple(input or ("random",)),
        frames=frames,
        seed=seed,
        fps=1e3 / period_ms if period_ms is not None else fps,
        overflow=overflow.value,
        queue=queue,
        latency=latency,
        frame_timeout_s=frame_timeout,
        start_timeout_s=start_timeout,
        window=window,
        exact=verify is _Verify.exact,
        preprocessing=Preprocessing(
            layout.value, _size(size), _numbers("--mean", mean), _numbers("--scale", scale)
        ),
    )
    prepared = prepare(folder, options, results=results, mpirun=mpirun, ssh_config=ssh_config)
    if dry_run:
        print(shlex.join(prepared.command))
        return
    total = prepared.source.frames
    with _progress() as progress:
        running = progress.add_task("running", total=total)
        comparing = progress.add_task("comparing", total=total, visible=verify is not None)
        finished = run_folder(
            prepared,
            verify=verify is not None,
            tolerance=tolerance,
            on_completed=lambda count: progress.update(running, completed=count),
            on_verified=lambda count: progress.update(comparing, completed=count),
        )
    if json_file is not None:
        _write_json(json_file, finished.summary.to_json())
    if json_file != Path("-"):
        if best:
            print_top(finished, names, best, _out)
        print_run(finished.summary, _out)
    verdict = finished.summary.verify
    if verdict is not None and not verdict.passed:
        raise RankSliceError(f"verify: {verdict.complaint}")


@app.command(
    epilog="Examples: rankslice deploy out | rankslice deploy out --boards edge01,edge02 --venv"
)
def deploy(
    folder: Annotated[
        Path, typer.Argument(metavar="OUT", readable=False, help="A folder made by 'build'.")
    ],
    boards: Annotated[
        str | None, typer.Option(metavar="B1,B2", help="Only these boards (default: all).")
    ] = None,
    venv: Annotated[
        bool,
        typer.Option(
            "--venv", help="Also make each board's Python environment, ~/.rankslice/venv."
        ),
    ] = False,
    ssh_config: _SshConfig = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would go where.")
    ] = False,
    json_file: _Json = None,
) -> None:
    """Bring the packages to their boards: what has changed alone, checked there, all or nothing."""
    from rankslice.framework.commands.deploy import deploy as deploy_folder
    from rankslice.framework.commands.deploy import plan_deployment
    from rankslice.framework.commands.show_deployment import print_deployed, print_deployment

    names = [name for name in (boards or "").split(",") if name]
    deployment = plan_deployment(folder, names, ssh_config=ssh_config)
    if dry_run:
        print_deployment(deployment, _out)
        return
    deployed = deploy_folder(
        deployment,
        venv=venv,
        on_step=lambda board, step: _talk.print(escape(f"{board}: {step}"), soft_wrap=True),
    )
    if json_file is not None:
        _write_json(json_file, {"boards": [board.to_json() for board in deployed]})
    if json_file != Path("-"):
        print_deployed(deployed, _out)


@app.command(
    epilog="Examples: rankslice profile model.onnx --platform boards.yaml -o profile.json"
    " | rankslice profile models/digits.onnx --per-core --alone -o digits.json"
)
def profile(
    model: Annotated[Path, typer.Argument(readable=False, help="An .onnx or .tflite model.")],
    platform: Annotated[
        str, typer.Option(help="YAML or .txt: the boards; 'local': this machine.")
    ] = "local",
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            callback=_writable,
            readable=False,
            help="File to make, or to go on with: only what it lacks is measured.",
        ),
    ] = Path("profile.json"),
    accelerators: Annotated[
        str | None,
        typer.Option(
            metavar="KEY;KEY;...",
            help="Mapping keys to measure, separated by ';' (default: each board's CPU with all its"
            " cores, each GPU, each NPU).",
        ),
    ] = None,
    per_core: Annotated[
        bool, typer.Option("--per-core", help="Measure single cores of CPUs instead of all cores.")
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="Leave a board's other accelerators idle meanwhile (default: they compute, as in"
            " a pipeline).",
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure everything anew, whatever the file has.")
    ] = False,
    refine: Annotated[
        bool,
        typer.Option(
            "--refine/--no-refine",
            help="Also measure the slices of the fastest pipeline, until what is expected of them"
            " is what they take.",
        ),
    ] = True,
    shape: Annotated[
        list[str] | None, typer.Option(help="Size of an open input: IN=1,3,224,224.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Begin nothing more after this time: the most telling slices are measured first,"
            " and what was left out is said.",
        ),
    ] = None,
    venv: Annotated[
        bool, typer.Option("--venv", help="Also make each board's Python environment.")
    ] = False,
    wheels: Annotated[
        str,
        typer.Option(
            metavar="DIR|download",
            help="Make it without the board's internet: from a folder of wheels, or from what this"
            " machine downloads.",
        ),
    ] = "",
    ssh_config: _SshConfig = None,
    json_file: _Json = None,
) -> None:
    """Measure how long layers and slices take on each kind of accelerator of each kind of board."""
    from rankslice.framework.commands.profile import Measuring, measure_model
    from rankslice.framework.commands.show_profile import (
        ProfileTalk,
        print_left_out,
        print_profile,
        profile_summary,
    )

    if out == Path("-"):
        raise typer.BadParameter("a profile needs a file, to go on with", param_hint="--out")
    with _progress() as progress:
        measuring = Measuring(
            model,
            platform,
            out,
            keys=tuple(accelerators.split(";")) if accelerators else (),
            per_core=per_core,
            shapes=_shapes(shape),
            alone=alone,
            fresh=fresh,
            venv=venv or bool(wheels),
            wheels=wheels,
            ssh_config=ssh_config,
            listener=ProfileTalk(_talk, progress),
        )
        try:
            with measuring:
                refinement = measure_model(measuring, refined=refine, seconds=seconds)
        except KeyboardInterrupt:
            _end_interrupted([out] if out.exists() else [])
    if json_file is not None:
        summary = profile_summary(measuring.profile, refinement)
        left_out = [each.to_json() for each in measuring.left_out()]
        _write_json(json_file, {**summary, "left_out": left_out})
    if json_file != Path("-"):
        print_profile(measuring.profile, refinement, out, _out)
        print_left_out(measuring.left_out(), _out)


@app.command(
    epilog="Examples: rankslice probe pi@192.168.1.11 pi@192.168.1.12 --out boards.yaml"
    " | rankslice probe --check boards.yaml | rankslice probe --check boards.yaml out"
)
def probe(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HOST...",
            help="Boards as ssh knows them, HOST or USER@HOST; 'local': this machine."
            " With --check: a folder made by 'build', if at all.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", readable=False, help="Platform file to make; '-' for stdout."),
    ] = Path("platform.yaml"),
    check: Annotated[
        str | None,
        typer.Option(
            metavar="PLATFORM",
            help="Instead: tell what would keep a job from running on the boards of this file.",
        ),
    ] = None,
    mpirun: Annotated[
        Path | None, typer.Option(readable=False, help="With --check: Open MPI's mpirun to use.")
    ] = None,
    ssh_config: _SshConfig = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an older platform file.")] = False,
    json_file: _Json = None,
) -> None:
    """Ask boards what they have, measure what connects them, and write it as a platform file."""
    if check is not None:
        _check_platform(check, hosts or [], mpirun, ssh_config, json_file)
        return
    from rankslice.framework.commands.probe import check_target, write_new
    from rankslice.framework.commands.probe import probe as probe_boards
    from rankslice.framework.commands.probed_platform import measured_pairs, platform_text
    from rankslice.framework.commands.show_probe import print_probed

    if not hosts:
        raise typer.BadParameter("which boards? Name them, or 'local'", param_hint="HOST...")
    if mpirun is not None:
        raise RankSliceError(Mistake("--mpirun", "means nothing without --check", "leave it out"))
    if out == json_file == Path("-"):
        raise typer.BadParameter("one of --out and --json can go to stdout", param_hint="--out")
    if out != Path("-"):
        check_target(out, force=force)
    with _talk.status("asking boards") as status:
        found = probe_boards(hosts, ssh_config=ssh_config, on_step=status.update)
    if Path("-") not in (out, json_file):
        print_probed(found.probed, _out)
    if found.errors:
        mistakes = [mistake for error in found.errors for mistake in error.mistakes]
        raise RankSliceError(*mistakes)
    for pair in measured_pairs(found.probed.routes):
        for complaint in pair.complaints:
            warning = f"[yellow]warning:[/yellow] {escape(complaint)}; is there a firewall?"
            _talk.print(warning, soft_wrap=True)
    if json_file is not None:
        _write_json(json_file, found.probed.to_json())
    text = platform_text(found.probed)
    if out == Path("-"):
        sys.stdout.write(text)
        return
    write_new(out, text, force=force)
    if json_file != Path("-"):
        _out.print(f"written to {escape(str(out))}", soft_wrap=True)


@app.command(
    epilog="Examples: rankslice simulate out --profile profile.json --frames 500 --fps 30"
    " | rankslice simulate model.onnx --mapping mapping.json --platform boards.yaml"
    " --profile profile.json --svg timeline.svg"
)
def simulate(
    target: Annotated[
        Path,
        typer.Argument(readable=False, help="A folder made by 'build', or a model."),
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(readable=False, help="Of a model: which layers go to which accelerator."),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(help="YAML or .txt: the boards and their links (default: 'local')."),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(readable=False, help="How long layers take: made by 'profile'."),
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Size of an open input: IN=1,3,224,224.")
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option(min=1, max=10_000_000, help="How many frames (default: 1000, or the trace)."),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(
            min=1e-3, max=1e9, help="Frames arrive at this rate (default: as fast as taken)."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(readable=False, help="Instead: a file with each arrival's second, a line."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Most frames inside (default: longest path + 1)."),
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option(min=1, help="Frames that may wait (default: those of a second)."),
    ] = None,
    scatter: Annotated[
        bool,
        typer.Option("--scatter", help="Let times differ from frame to frame as measured ones do."),
    ] = False,
    jitter: Annotated[
        float,
        typer.Option(
            min=0, max=10, help="Instead: standard deviation of times, as a share of the mean."
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of --scatter and --jitter.")] = 0,
    svg: Annotated[
        Path | None,
        typer.Option(
            callback=_writable,
            readable=False,
            help="Draw which rank computes which of the first frames when; '-' for stdout.",
        ),
    ] = None,
    drawn: Annotated[int, typer.Option(min=1, max=1000, help="Frames in the drawing.")] = 12,
    json_file: _Json = None,
) -> None:
    """Predict rate, latency and queues of a job without its boards, event by event."""
    from rankslice.framework.commands.show_simulation import print_simulation
    from rankslice.framework.commands.simulate import Scatter, Traffic
    from rankslice.framework.commands.simulate import simulate as simulate_job
    from rankslice.framework.commands.timeline import timeline_of

    if trace is not None:
        _refuse_with("--trace", fps=fps)
    if scatter:
        _refuse_with("--scatter", jitter=jitter)
    if svg == json_file == Path("-"):
        raise typer.BadParameter("one of --svg and --json can go to stdout", param_hint="--svg")
    simulated = simulate_job(
        target,
        mapping=mapping,
        platform=platform,
        profile=profile,
        shapes=_shapes(shape),
        traffic=Traffic(frames, fps, trace, window, queue),
        scatter=Scatter(scatter, jitter, seed),
        traced=drawn if svg is not None else 0,
    )
    if svg is not None:
        _write(svg, timeline_of(simulated), "--svg")
    if json_file is not None:
        _write_json(json_file, simulated.to_json())
    if Path("-") not in (svg, json_file):
        print_simulation(simulated, _out)


@app.command(
    epilog="Examples: rankslice explore model.onnx --platform boards.yaml --fps 40"
    " | rankslice explore model.onnx --profile profile.json --method nsga2 --evaluate run"
)
def explore(
    model: Annotated[Path, typer.Argument(readable=False, help="An .onnx or .tflite model.")],
    platform: Annotated[
        str, typer.Option(help="YAML or .txt: the boards; 'local': this machine.")
    ] = "local",
    profile: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="What layers take, measured by 'profile' (default: it is measured first, as"
            " 'profile' does, and kept in the folder).",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(readable=False, help="Folder to make.")] = Path("explored"),
    method: Annotated[
        _Method,
        typer.Option(
            help="exact: the best contiguous slices; nsga2: any mapping, by a genetic algorithm;"
            " exhaustive: every mapping, for small cases."
        ),
    ] = _Method.exact,
    objectives: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="Of throughput, energy, memory (the worst board's) and latency.",
        ),
    ] = "throughput,energy,memory",
    fps: Annotated[
        float | None,
        typer.Option(min=1e-3, max=1e9, help="What your camera needs: which mapping to take?"),
    ] = None,
    accelerators: Annotated[
        str | None,
        typer.Option(
            metavar="KEY;KEY;...",
            help="Mapping keys that may be used, separated by ';' (default: those measured).",
        ),
    ] = None,
    per_core: Annotated[
        bool, typer.Option("--per-core", help="Of CPUs, use single cores alone.")
    ] = False,
    population: Annotated[
        int | None,
        typer.Option(
            min=4,
            max=100_000,
            help="nsga2: mappings in a generation (default: 100; of those that are simulated or"
            " run, the square root of --evaluations).",
        ),
    ] = None,
    mutation: Annotated[
        float, typer.Option(min=0, max=1, help="nsga2: probability that a mapping is changed.")
    ] = 0.1,
    crossover: Annotated[
        float, typer.Option(min=0, max=1, help="nsga2: probability that two mappings are mixed.")
    ] = 0.5,
    generations: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="nsga2: how many (default: 400; of mappings that are simulated or run, until"
            " --evaluations are done).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="nsga2: of everything that is drawn.")] = 0,
    coarse: Annotated[
        bool, typer.Option("--coarse", help="Move blocks of layers first, then single layers.")
    ] = False,
    evaluate: Annotated[
        _Evaluate,
        typer.Option(
            help="What evaluates mappings: model: the cost model; simulator: each is simulated;"
            " run: each is built, deployed, run and measured. nsga2 and exhaustive search by these"
            " figures; what the exact planner finds by the model is ranked anew by them."
        ),
    ] = _Evaluate.model,
    evaluations: Annotated[
        int | None,
        typer.Option(
            "--evaluations",
            "--runs",
            min=1,
            max=1_000_000,
            help="Most mappings that are simulated (default: 1000) or run (default: 50).",
        ),
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of each simulation (default: 100) or run (default: those of 3 seconds).",
        ),
    ] = None,
    keep: Annotated[
        int, typer.Option(min=1, max=99, help="Most mappings of the front that are written.")
    ] = 24,
    shape: Annotated[
        list[str] | None, typer.Option(help="Size of an open input: IN=1,3,224,224.")
    ] = None,
    ssh_config: _SshConfig = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace the folder of an older exploration; what it measured is not measured"
            " again.",
        ),
    ] = False,
    json_file: _Json = None,
) -> None:
    """Find good mappings: files for 'build', a table, and a page with the Pareto front."""
    from dataclasses import replace

    from rankslice.exploration.results import exploration_to_json
    from rankslice.exploration.search import EVALUATIONS, Wanted, usual_genetics
    from rankslice.framework.commands.explore import explore as explore_mappings
    from rankslice.framework.commands.explore import parse_objectives, unfinished_files
    from rankslice.framework.commands.profile import Listener
    from rankslice.framework.commands.show_exploration import print_exploration
    from rankslice.framework.commands.show_profile import ProfileTalk

    if evaluate is _Evaluate.model:
        _refuse_with("--evaluate model", evaluations=evaluations, frames=frames)
    most = evaluations or EVALUATIONS.get(evaluate.value, 0)
    usual = usual_genetics(evaluate.value, most)
    genetics = replace(
        usual,
        population=population or usual.population,
        mutation=mutation,
        crossover=crossover,
        generations=generations or usual.generations,
        seed=seed,
    )
    wanted = Wanted(
        method=method.value,
        objectives=parse_objectives(objectives),
        target_fps=fps,
        keys=tuple(key for key in (accelerators or "").split(";") if key),
        per_core=per_core,
        genetics=genetics,
        coarse=coarse,
        keep=keep,
        evaluate=evaluate.value,
        evaluations=most,
        frames=frames,
    )
    with _progress() as progress:
        listener = ProfileTalk(_talk, progress) if profile is None else Listener()
        bars: dict[str, Any] = {}

        def on_progress(step: str, done: int, total: int) -> None:
            if step not in bars:
                bars[step] = progress.add_task(step, total=total)
            progress.update(bars[step], completed=done, total=total)

        try:
            found = explore_mappings(
                model,
                platform,
                profile,
                out,
                wanted,
                shapes=_shapes(shape),
                force=force,
                ssh_config=ssh_config,
                listener=listener,
                on_progress=on_progress,
            )
        except KeyboardInterrupt:
            _end_interrupted(unfinished_files(out))
    if json_file is not None:
        _write_json(json_file, exploration_to_json(found))
    if json_file != Path("-"):
        print_exploration(found, str(out), _out)


@app.command(epilog="Example: rankslice demo")
def demo(
    folder: Annotated[
        Path | None,
        typer.Option(readable=False, help="Keep everything in this folder (default: temporary)."),
    ] = None,
) -> None:
    """Slice a digit classifier over three ranks and ResNet-50 over two, on this machine."""
    from rankslice.framework.commands.demo import demo as show_demo

    show_demo(_out, _talk, folder)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=_talk,
        transient=True,
        disable=not _talk.is_terminal,
    )


def _end_interrupted(files: Sequence[Path]) -> NoReturn:
    """End a command that was interrupted, and tell which files have what was measured."""
    names = " and ".join(map(str, files))
    kept = f"; what was measured is in {names}: the same command goes on there" if files else ""
    _talk.print(f"interrupted{escape(kept)}", soft_wrap=True)
    raise typer.Exit(128 + signal.SIGINT)


def _write_json(file: Path, record: dict[str, Any]) -> None:
    _write(file, json.dumps(record, indent=1) + "\n", "--json")


def _check_platform(
    platform: str,
    folders: Sequence[str],
    mpirun: Path | None,
    ssh_config: Path | None,
    json_file: Path | None,
) -> None:
    """Show what would keep a job from running on the boards of a platform."""
    from rankslice.framework.commands.check_platform import FAIL, check_platform
    from rankslice.framework.commands.show_probe import print_findings

    if len(folders) > 1:
        found = "with --check there can be one build folder"
        raise typer.BadParameter(f"{found}, not {len(folders)}", param_hint="HOST...")
    out = Path(folders[0]) if folders else None
    with _talk.status("reading") as status:
        findings = check_platform(
            platform, out, mpirun=mpirun, ssh_config=ssh_config, on_step=status.update
        )
    if json_file is not None:
        _write_json(json_file, {"findings": [finding.to_json() for finding in findings]})
    if json_file != Path("-"):
        print_findings(findings, _out)
    failed = sum(finding.state == FAIL for finding in findings)
    if failed:
        raise RankSliceError(f"{failed} of {len(findings)} checks failed")


def _inspect_object(model: Path, json_file: Path | None) -> None:
    """Show the tables of a ``.tflite`` file."""
    from rankslice.framework.commands.object_json import object_to_json
    from rankslice.framework.commands.show_object import print_object
    from rankslice.frontend.tflite_object import read_object

    found = read_object(model)
    if json_file is not None:
        _write_json(json_file, object_to_json(found))
    if json_file != Path("-"):
        print_object(found, _out)


def _inspect_internals(
    model: Path,
    delegate: str | None,
    accelerator: _Accelerator | None,
    options: list[str],
    json_file: Path | None,
) -> None:
    """Show what LiteRT makes of a ``.tflite`` file."""
    from rankslice.framework.commands.internals import Wanted, internals_to_json, look_inside
    from rankslice.framework.commands.show_internals import print_internals

    if delegate and accelerator:
        _refuse_with("--accelerator", delegate=delegate)
    wrong = [text for text in options if "=" not in text]
    if wrong:
        raise RankSliceError(*(Mistake("--option", repr(t), "expected NAME=VALUE") for t in wrong))
    wanted = Wanted(
        delegate or "",
        accelerator.value if accelerator else "",
        {name: value for name, _, value in (text.partition("=") for text in options)},
    )
    with _talk.status("loading"):
        found = look_inside(model, wanted)
    if json_file is not None:
        _write_json(json_file, internals_to_json(found))
    if json_file != Path("-"):
        print_internals(found, _out)


def _refuse_with(option: str, /, **others: Any) -> None:
    """Raise if options are given that mean nothing beside another one."""
    given = [name for name, value in others.items() if value]
    if given:
        found = f"means nothing together with {option}"
        raise RankSliceError(
            *(Mistake(f"--{name.replace('_', '-')}", found, "leave out one") for name in given)
        )


def _write(file: Path, text: str, option: str) -> None:
    if file == Path("-"):
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        found = f"cannot be written: {error.strerror}"
        raise RankSliceError(Mistake(str(file), found, f"choose another {option}")) from None


def _mapping(
    mapping: Path | None, cuts: str | None, share_cores: bool, ask: Callable[[], str]
) -> Path | MakeMapping:
    """Return the mapping that the options of ``build`` mean; ask if there are none."""
    from rankslice.framework.commands.cutting import mapping_of_cuts, parse_cuts

    if mapping is not None and cuts is not None:
        found = "says where layers go, and so does --mapping"
        raise RankSliceError(Mistake("--cuts", found, "give one of them"))
    if mapping is not None:
        return mapping
    return mapping_of_cuts(parse_cuts(ask() if cuts is None else cuts), share_cores=share_cores)


def _ask_for_cuts(model: Path, shapes: dict[str, tuple[int, ...]]) -> str:
    """Show where a model can be cut, and return what the person at the terminal types."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "neither this nor --cuts is given: where do the layers go?", param_hint="--mapping"
        )
    from rankslice.framework.commands.inspect import inspect_model
    from rankslice.framework.commands.show_inspection import print_cuts

    with _talk.status("reading"):
        inspection = inspect_model(model, shapes)
    print_cuts(inspection, _talk)
    _talk.print("Where does each further slice begin? One or more numbers, such as those under cut")
    answer: str = typer.prompt("cuts", err=True)
    return answer


def _shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        if not name or not all(_is_number(size) for size in sizes.split(",")):
            raise typer.BadParameter(
                f"{text!r} is not of the form IN=1,3,224,224", param_hint="--shape"
            )
        shapes[name] = tuple(int(size) for size in sizes.split(","))
    return shapes


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.partition("x")
    sides = (height, width or height)
    if not all(_is_number(side) and int(side) for side in sides):
        raise typer.BadParameter(f"{text!r} is not of the form HxW", param_hint="--size")
    return int(sides[0]), int(sides[1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers", param_hint=option) from None
