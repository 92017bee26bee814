"""The options of ``rankslice bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from rankslice.backend.runtime.sources import usage
from rankslice.commands.app import command
from rankslice.commands.build_folder import BENCH, BENCH_PAGE
from rankslice.commands.options import (
    UNIT_SCALE,
    FrameTimeout,
    Json,
    Layout,
    Mpirun,
    Scale,
    SshConfig,
    StartTimeout,
    Window,
    parse_preprocessing,
    refuse_shared_files,
    refuse_with,
    writes,
)
from rankslice.commands.output import print_line, progress_bars, screen, write_json
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import BENCH as BENCH_KIND
from rankslice.framework.files.output_file import PAGE, STDOUT, check_output, write_output
from rankslice.framework.wording import quoted

if TYPE_CHECKING:
    from rankslice.commands.bench.bench import BenchOptions
    from rankslice.measurement.bench.records import Bench

_COMPARE = "compare"


@command(
    "out --against unsliced",
    "out --fps 30 --input photos/ --starts 20",
    "compare before.json after.json",
)
def bench(
    context: typer.Context,
    targets: Annotated[
        list[str],
        Argument(
            metavar="OUT...",
            help="Build folder; or 'compare' and two files of benchmarks.",
        ),
    ],
    against: Annotated[
        str | None,
        Option(
            metavar="OUT2|unsliced",
            help="Measure in turns with another build folder, or with the model as one rank.",
        ),
    ] = None,
    starts: Annotated[
        int, Option(min=1, max=10_000, help="Starts of each job under each load.")
    ] = 10,
    frames: Annotated[int, Option(min=1, help="Frames of each start.")] = 300,
    fps: Annotated[
        float | None,
        Option(min=1e-3, max=1e9, help="Frame rate, instead of --load-levels."),
    ] = None,
    load_levels: Annotated[
        str,
        Option(
            metavar="PERCENT,...",
            help="Frame rates at which to measure the latency, in per cent of the saturation"
            " throughput; 'none': measure that alone.",
        ),
    ] = "50,80,95",
    input: Annotated[list[str] | None, Option(help=f"Where frames come from: {usage()}.")] = None,
    seed: Annotated[int, Option(min=0, help="Random seed of frames and of the order.")] = 0,
    window: Window = None,
    layout: Annotated[Layout, Option(help="Layout of image inputs.")] = Layout.nchw,
    size: Annotated[str | None, Option(help="Resize images to HxW, then crop the centre.")] = None,
    mean: Annotated[str, Option(help="Mean subtracted from pixels (0-255): M or R,G,B.")] = "0",
    scale: Scale = UNIT_SCALE,
    out: Annotated[
        Path | None,
        Option(
            callback=writes(BENCH_KIND, may_be_stream=False),
            readable=False,
            help="File for the raw values (default: OUT/bench.json). A page is written beside it,"
            " as .html.",
        ),
    ] = None,
    frame_timeout: FrameTimeout = None,
    start_timeout: StartTimeout = None,
    mpirun: Mpirun = None,
    ssh_config: SshConfig = None,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.commands.bench.bench import BenchOptions
    from rankslice.commands.bench.show import bench_json

    if targets[0] == _COMPARE:
        _compare(context, targets[1:], json_file)
        return
    folder, against = _folders(targets, against)
    if fps is not None:
        refuse_with("--fps", load_levels=_is_given(context, "load_levels"))
    options = BenchOptions(
        starts=starts,
        frames=frames,
        fps=fps,
        levels=_levels(load_levels),
        seed=seed,
        inputs=tuple(input or ("random",)),
        window=window,
        preprocessing=parse_preprocessing(layout, size, mean, scale),
        frame_timeout_s=frame_timeout,
        start_timeout_s=start_timeout,
        mpirun=mpirun,
        ssh_config=ssh_config,
    )
    file, page = _outputs(folder, out)
    found = _measure(folder, against, options)
    from rankslice.measurement.bench.page import bench_page
    from rankslice.measurement.bench.records import write_bench
    from rankslice.measurement.pages.page import page_html

    write_bench(found, file)
    write_output(page, page_html(bench_page(found)), "--out")
    write_json(json_file, bench_json(found))
    if json_file != STDOUT:
        from rankslice.commands.bench.show import print_bench

        print_bench(found, screen)
        print_line(screen, f"raw values in {file}, page in {page}")


def _measure(folder: Path, against: str | None, options: BenchOptions) -> Bench:
    from rankslice.commands.bench.bench import bench as bench_folder

    with progress_bars() as progress:
        bar = progress.add_task("building", total=None)

        def on_progress(step: str, done: int, total: int) -> None:
            progress.update(bar, description=step, completed=done, total=total)

        return bench_folder(folder, against, options, on_progress=on_progress)


def _compare(context: typer.Context, names: list[str], json_file: Path | None) -> None:
    """Compare two files of benchmarks."""
    from rankslice.commands.bench.bench import compare
    from rankslice.commands.bench.show import compared_json, print_compared
    from rankslice.measurement.bench.records import read_bench

    others = [param.name for param in context.command.params if param.name not in _OF_COMPARE]
    given = {str(name): True for name in others if name and _is_given(context, name)}
    refuse_with(_COMPARE, **given)
    if len(names) != 2:
        found = f"names {len(names)} file{'s' if len(names) != 1 else ''}"
        raise RankSliceError(Mistake(_COMPARE, found, "expected two that 'bench' wrote"))
    found_both = compare(*(read_bench(Path(name)) for name in names))
    write_json(json_file, compared_json(found_both))
    if json_file != STDOUT:
        print_compared(found_both, (names[0], names[1]), screen)


_OF_COMPARE = ("targets", "json_file")


def _folders(targets: list[str], against: str | None) -> tuple[Path, str | None]:
    """Return the build folder, and what it is measured against."""
    if len(targets) > (2 if against is None else 1):
        expected = "expected one build folder, and what it is measured against"
        raise RankSliceError(Mistake("OUT", f"{len(targets)} are given", expected))
    return Path(targets[0]), against if len(targets) == 1 else targets[1]


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _levels(text: str) -> tuple[float, ...]:
    """Return the shares of a list of per cents."""
    if text == "none":
        return ()
    try:
        levels = tuple(dict.fromkeys(float(part) / 100 for part in text.split(",")))
    except ValueError:
        levels = ()
    if not levels or not all(0 < level <= 1 for level in levels):
        found = f"{quoted(text)} is not a list of per cents above 0, up to 100"
        raise RankSliceError(Mistake("--load-levels", found, "expected a list such as 50,80,95"))
    return levels


def _outputs(folder: Path, out: Path | None) -> tuple[Path, Path]:
    """Return where raw values and the page go.

    Raises:
        RankSliceError: they cannot be written there.
    """
    if out is not None:
        page = out.with_suffix(".html")
        if page == out:
            expected = "expected another suffix, such as .json"
            raise RankSliceError(Mistake(str(out), "is to be the name of the page", expected))
        return out, check_output(page, "--out", PAGE, may_be_stream=False)
    from rankslice.commands.build_folder import read_plan

    read_plan(folder)  # a folder that is none is told as such, and not as one without room
    file, page = (
        check_output(folder / name, "--out", kind, may_be_stream=False)
        for name, kind in ((BENCH, BENCH_KIND), (BENCH_PAGE, PAGE))
    )
    return file, page
