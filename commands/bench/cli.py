"""The options of ``rankslice bench``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from rankslice.backend.runtime.sources import usage
from rankslice.commands.app import command
from rankslice.commands.options import (
    FrameTimeout,
    ImageLayout,
    Json,
    Layout,
    Mean,
    Mpirun,
    Scale,
    Size,
    SshConfig,
    StartTimeout,
    Window,
    parse_preprocessing,
    refuse_shared_files,
    refuse_with,
    refuse_without,
    writes,
)
from rankslice.commands.output import print_line, progress_bars, screen, talk, write_json
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import (
    BENCH as BENCH_KIND,
    PAGE,
    STDOUT,
    check_output,
    write_output,
)
from rankslice.framework.wording import quoted
from rankslice.session.build_folder import BENCH, BENCH_PAGE

if TYPE_CHECKING:
    from rich.console import Console

    from rankslice.commands.bench.bench import BenchOptions
    from rankslice.commands.bench.scenario import ScenarioRequest
    from rankslice.measurement.bench.records import Bench
    from rankslice.views.content import Section

_COMPARE = "compare"


class Scenarios(str, Enum):
    """MLPerf's, as :data:`rankslice.measurement.bench.scenarios.SCENARIOS` describes them."""

    single = "single"
    multi = "multi"
    server = "server"
    offline = "offline"


class CoRunners(str, Enum):
    """What works beside a job, as :data:`rankslice.session.bench.co_runner.KINDS` describes it."""

    cpu = "cpu"
    memory = "memory"
    network = "network"


@command(
    "out --against unsliced",
    "out --fps 30 --input photos/ --starts 20",
    "out --scenario server --target-fps 50 --latency-limit-ms 100",
    "out --load cpu",
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
            " throughput; 'none': measure only the throughput.",
        ),
    ] = "50,80,95",
    input: Annotated[list[str] | None, Option(help=f"Where frames come from: {usage()}.")] = None,
    seed: Annotated[int, Option(min=0, help="Random seed of frames and of the order.")] = 0,
    window: Window = None,
    layout: ImageLayout = Layout.nchw,
    size: Size = None,
    mean: Mean = None,
    scale: Scale = None,
    scenario: Annotated[
        Scenarios | None,
        Option(help="Measure one start under a scenario of MLPerf instead."),
    ] = None,
    target_fps: Annotated[
        float | None,
        Option(min=1e-3, max=1e9, help="With --scenario server: mean rate of queries."),
    ] = None,
    latency_limit_ms: Annotated[
        float | None,
        Option(
            min=1e-3, max=1e9, help="With --scenario server: limit for the latency of 99 % of them."
        ),
    ] = None,
    loadgen: Annotated[
        bool,
        Option(
            "--loadgen", help="With --scenario: also drive the job with MLPerf's load generator."
        ),
    ] = False,
    loadgen_logs: Annotated[
        Path | None,
        Option(readable=False, help="With --loadgen: folder to create for its logs."),
    ] = None,
    load: Annotated[
        CoRunners | None,
        Option(
            help="Measure beside a co-runner on each board instead: one that computes on the job's"
            " cores, copies memory, or sends over the loopback interface."
        ),
    ] = None,
    busy: Annotated[
        str,
        Option(
            metavar="PERCENT,...",
            help="With --load: shares of the time in which the co-runner works; 0 is added.",
        ),
    ] = "25,50,75,100",
    explain: Annotated[
        bool,
        Option(
            "--explain",
            help="Split the variance of the latency among frames, the machine over time, and"
            " starts.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        Option(
            callback=writes(BENCH_KIND, may_be_stream=False),
            readable=False,
            help="File for the raw values (default: OUT/bench.json). A page is written next to"
            " it, as .html.",
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

    if targets[0] == _COMPARE:
        _compare(context, targets[1:], json_file)
        return
    folder, against = _folders(targets, against)
    _refuse_other_ways(context, scenario, load, against)
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
        load=load and load.value,
        busy=_shares("--busy", busy),
        preprocessing=parse_preprocessing(layout, size, mean, scale),
        frame_timeout_s=frame_timeout,
        start_timeout_s=start_timeout,
        mpirun=mpirun,
        ssh_config=ssh_config,
    )
    files = _outputs(folder, out)
    if scenario is not None:
        from rankslice.commands.bench.scenario import scenario_request

        given = frames if _is_given(context, "frames") else None
        request = scenario_request(
            folder,
            scenario.value,
            replace(options.run_options, frames=given),
            target_fps=target_fps,
            latency_limit_ms=latency_limit_ms,
            mpirun=mpirun,
            ssh_config=ssh_config,
        )
        _write(_scenario(request, loadgen_logs, loadgen=loadgen), *files, json_file)
        return
    turns: list[Bench] = []
    try:
        _measure(folder, against, options, turns)
    except BaseException:
        if turns:
            _write(_found(turns[-1], explain=explain), *files, json_file)
            print_line(talk, "the benchmark was cut short: only complete turns count", "warning")
        raise
    _write(_found(turns[-1], explain=explain), *files, json_file)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was measured, and how it is told beside its usual figures."""

    bench: Bench
    show: Callable[[Console], None]
    sections: tuple[Section, ...] = ()
    """Of the page, before the others."""
    record: dict[str, Any] = field(default_factory=dict)
    """What ``--json`` has besides."""


def _write(found: _Found, file: Path, page: Path, json_file: Path | None) -> None:
    """Tell what was measured, even if there is no room to write it, and write all files."""
    from rankslice.commands.bench.show import bench_json
    from rankslice.measurement.bench.records import write_bench
    from rankslice.views.bench_page import bench_page
    from rankslice.views.page import page_html

    if json_file != STDOUT:
        found.show(screen)
    write_bench(found.bench, file)
    write_output(page, page_html(bench_page(found.bench, found.sections)), "--out")
    write_json(json_file, {**found.record, **bench_json(found.bench)})
    if json_file != STDOUT:
        print_line(screen, f"raw values in {file}, page in {page}")


def _found(bench: Bench, *, explain: bool) -> _Found:
    """Return how to tell what was measured, beside a co-runner or not."""
    from rankslice.commands.bench.show import (
        beside_json,
        explained_json,
        print_bench,
        print_beside,
        print_explained,
    )
    from rankslice.measurement.bench.beside import beside_figures
    from rankslice.views.bench_sections import beside_section, explained, explained_section

    beside = beside_figures(bench)
    why = explained(bench) if explain else []

    def show(console: Console) -> None:
        print_bench(bench, console)
        if beside:
            print_beside(beside, console)
        if why:
            print_explained(why, console)

    sections = [beside_section(beside)] if beside else []
    sections += [explained_section(why)] if why else []
    record: dict[str, Any] = {"beside": beside_json(beside)} if beside else {}
    if why:
        record["explained"] = explained_json(why)
    return _Found(bench, show, tuple(sections), record)


def _scenario(request: ScenarioRequest, logs: Path | None, *, loadgen: bool) -> _Found:
    """Measure a job under a scenario, and have the load generator drive it if that is wanted."""
    from rankslice.commands.bench.loadgen import check_loadgen, run_loadgen
    from rankslice.commands.bench.scenario import run_scenario
    from rankslice.commands.bench.show import print_scenario, scenario_json
    from rankslice.views.bench_sections import scenario_section

    if loadgen:
        check_loadgen(logs)
    with progress_bars() as progress:
        bar = progress.add_task(request.scenario.name, total=request.options.frames)
        ran = run_scenario(request, lambda count: progress.update(bar, completed=count))
    if loadgen:
        with progress_bars() as progress:
            progress.add_task("loadgen", total=None)
            ran = replace(ran, loadgen=run_loadgen(request, logs))
    return _Found(
        ran.bench,
        partial(print_scenario, ran),
        (scenario_section(ran.figures, ran.loadgen),),
        scenario_json(ran),
    )


def _refuse_other_ways(
    context: typer.Context,
    scenario: Scenarios | None,
    load: CoRunners | None,
    against: str | None,
) -> None:
    """Raise if options of several ways to measure are given."""
    if scenario is None:
        refuse_without(context, "--scenario", "target_fps", "latency_limit_ms", "loadgen")
    else:
        others = ("starts", "fps", "load_levels", "load", "explain")
        given = {name: _is_given(context, name) for name in others}
        refuse_with("--scenario", against=against, **given)
    if not context.params["loadgen"]:
        refuse_without(context, "--loadgen", "loadgen_logs")
    if load is None:
        refuse_without(context, "--load", "busy")


def _measure(folder: Path, against: str | None, options: BenchOptions, turns: list[Bench]) -> None:
    """Measure, and put what has been measured into a list after each turn, in place of before."""
    from rankslice.commands.bench.bench import bench as bench_folder

    with progress_bars() as progress:
        bar = progress.add_task("building", total=None)

        def on_progress(step: str, done: int, total: int) -> None:
            progress.update(bar, description=step, completed=done, total=total)

        def on_turn(found: Bench) -> None:
            turns[:] = [found]

        bench_folder(folder, against, options, on_progress=on_progress, on_turn=on_turn)


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
    return () if text == "none" else _shares("--load-levels", text)


def _shares(option: str, text: str) -> tuple[float, ...]:
    """Return the shares of a list of per cents."""
    try:
        shares = tuple(dict.fromkeys(float(part) / 100 for part in text.split(",")))
    except ValueError:
        shares = ()
    if not shares or not all(0 < share <= 1 for share in shares):
        found = f"{quoted(text)} is not a list of per cents above 0, up to 100"
        raise RankSliceError(Mistake(option, found, "expected a list such as 50,80,95"))
    return shares


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
    from rankslice.session.build_folder import read_plan

    read_plan(folder)  # a folder that is none is told as such, and not as one without room
    file, page = (
        check_output(folder / name, "--out", kind, may_be_stream=False)
        for name, kind in ((BENCH, BENCH_KIND), (BENCH_PAGE, PAGE))
    )
    return file, page
