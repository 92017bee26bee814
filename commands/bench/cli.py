"""The options of ``rankslice bench``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankslice.backend.runtime.options import IMAGE_OPTIONS, RunOptions
from rankslice.commands.command import command, function
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import (
    BENCH as BENCH_KIND,
    FREQUENCIES,
    PAGE,
    STDOUT,
    check_output,
    write_json,
    write_output,
)
from rankslice.framework.option_records import Writes, about, offered
from rankslice.session.bench.bench_options import BenchOptions, ScenarioOptions
from rankslice.session.build_folder import BENCH, BENCH_PAGE
from rankslice.session.shared_options import Json, Launching, refuse_with
from rankslice.views.terminal import Bars, print_line, progress_bars, screen, show, talk

if TYPE_CHECKING:
    from rankslice.measurement.bench.bench_records import Bench
    from rankslice.session.bench.scenario import ScenarioRun
    from rankslice.views.content import Part, Section

_SCENARIOS = ("single", "multi", "server", "offline")
_BOTH = (*IMAGE_OPTIONS, "frame_timeout_s", "start_timeout_s")
RawValues = Annotated[
    Path | None,
    about(
        "File for the raw values (default: OUT/bench.json). A page is written next to it, as"
        " .html.",
        Path,
        writes=Writes(BENCH_KIND, may_be_stream=False),
    ),
]


@function
def bench(
    folder: Path,
    against: Annotated[
        str | Path | None,
        about(
            "Measure in turns with another build folder, or with the model as one rank.",
            str,
            metavar="OUT2|unsliced",
        ),
    ] = None,
    *,
    options: BenchOptions,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
    on_turn: Callable[..., Any] = lambda bench: None,
) -> Bench:
    """Measure a job, and another one in turns with it; return the raw values.

    ``rankslice.measurement.bench.series`` computes figures of them: ``all_series``,
    ``own_ratios``, ``by_frequency``, and ``beside`` those beside a co-runner.
    ``bench_records.write_bench`` keeps them. ``load_levels`` and ``busy`` are shares here, above 0
    and at most 1; ``frequency`` is in hertz. ``on_progress`` is called with what is measured, how
    many starts are done, and the total; ``on_turn`` with what has been measured after each turn.

    Raises:
        RankSliceError: something does not fit, or a job failed.
    """
    from rankslice.session.bench.bench import bench as bench_folder

    return bench_folder(folder, against, options, on_progress=on_progress, on_turn=on_turn)


@function
def bench_scenario(
    folder: Path,
    scenario: Annotated[str, about("The scenario of MLPerf.", _SCENARIOS)],
    *,
    under: ScenarioOptions,
    options: Annotated[RunOptions, offered("inputs", "frames", "seed", "window", *_BOTH)],
    launching: Launching,
    on_prepared: Callable[[int | None], Callable[[int], None]] = lambda frames: lambda count: None,
) -> ScenarioRun:
    """Measure one start of a job under a scenario of MLPerf.

    By default there are as few frames as tell the scenario's percentile. ``on_prepared`` is called
    with their number; what it returns, with the number of those that have come out.

    Raises:
        RankSliceError: something does not fit, or the job failed.
    """
    from rankslice.measurement.bench.scenarios import SCENARIOS
    from rankslice.session.bench.scenario import run_scenario

    return run_scenario(folder, SCENARIOS[scenario], options, under, launching, on_prepared)


@command(
    "bench",
    "out --against unsliced",
    "out --fps 30 --input photos/ --starts 20",
    "out --scenario server --target-fps 50 --latency-limit-ms 100",
    "out --load cpu",
    "out --frequency 1.2G,1.8G",
    calls=bench,
)
def show_bench(
    call: Callable[..., Bench],
    typed: set[str],
    targets: Annotated[
        tuple[str, ...],
        about(
            "Build folder, and what it is measured against.",
            is_argument=True,
            many=tuple,
            metavar="OUT",
        ),
    ],
    options: BenchOptions,
    against: str | None = None,
    *,
    scenario: Annotated[
        str | None,
        about(
            "Measure one start under a scenario of MLPerf instead.",
            _SCENARIOS,
            excludes=("starts", "fps", "load_levels", "load", "frequency", "explain", "against"),
        ),
    ] = None,
    under: ScenarioOptions,
    explain: Annotated[
        bool,
        about("Split the variance of the latency among frames, the machine over time, and starts."),
    ] = False,
    out: RawValues = None,
    csv: Annotated[
        Path | None,
        about(
            "With --frequency: write a line per frequency; '-': standard output.",
            Path,
            writes=Writes(FREQUENCIES),
            needs="frequency",
        ),
    ] = None,
    json: Json = None,
) -> None:
    folder, other = _folders(targets, against)
    ways = {"--load": options.load, "--frequency": options.frequency, "--scenario": scenario}
    for way, value in ways.items():
        if value:
            refuse_with(way, against=other)
    files = _outputs(folder, out)
    if scenario is not None:
        frames = options.frames if "frames" in typed else None
        _write(_of_scenario(folder, scenario, under, options, frames), *files, json)
        return
    turns: list[Bench] = []
    try:
        _measure(partial(call, folder=folder, against=other), turns)
    except BaseException:
        if turns:
            _write(_results(turns[-1], explain=explain), *files, json, csv)
            print_line(talk, "the benchmark was cut short: only complete turns count", "warning")
        raise
    _write(_results(turns[-1], explain=explain), *files, json, csv)


@dataclass(frozen=True, slots=True)
class _Results:
    """A benchmark, and what is shown of it besides the usual figures."""

    bench: Bench
    parts: tuple[Part | Section, ...]
    """What the terminal shows."""
    sections: tuple[Section, ...] = ()
    """Of the page, before the others."""
    record: dict[str, Any] = field(default_factory=dict)
    """What ``--json`` has besides."""


def _write(
    results: _Results, file: Path, page: Path, json: Path | None, csv: Path | None = None
) -> None:
    """Show the results, even if there is no room to write them, and write all files."""
    from rankslice.commands.bench.show import bench_json, frequencies_csv
    from rankslice.measurement.bench.bench_records import write_bench
    from rankslice.views.bench_page import bench_page
    from rankslice.views.page import page_html

    if STDOUT not in (json, csv):
        show(screen, *results.parts)
    write_bench(results.bench, file)
    write_output(page, page_html(bench_page(results.bench, results.sections)), "--out")
    write_json(json, {**results.record, **bench_json(results.bench)})
    if csv is not None:
        write_output(csv, frequencies_csv(results.record["frequencies"]), "--csv")
    if STDOUT not in (json, csv):
        print_line(screen, f"raw values in {file}, page in {page}")


def _results(bench: Bench, *, explain: bool) -> _Results:
    from rankslice.commands.bench.show import (
        bench_parts,
        beside_json,
        explained_json,
        frequencies_json,
    )
    from rankslice.measurement.bench.series import beside_figures, by_frequency
    from rankslice.views.bench_sections import (
        beside_section,
        explained,
        explained_section,
        frequency_section,
    )

    sections: list[Section] = []
    record: dict[str, Any] = {}
    if beside := beside_figures(bench):
        sections.append(beside_section(beside))
        record["beside"] = beside_json(beside)
    if frequencies := by_frequency(bench):
        sections.append(frequency_section(bench, frequencies))
        record["frequencies"] = frequencies_json(bench)
    if explain:
        explanations = explained(bench)
        sections.append(explained_section(explanations))
        record["explained"] = explained_json(explanations)
    return _Results(bench, (*bench_parts(bench), *sections), tuple(sections), record)


def _of_scenario(
    folder: Path,
    scenario: str,
    under: ScenarioOptions,
    options: BenchOptions,
    frames: int | None,
) -> _Results:
    from rankslice.commands.bench.show import scenario_json
    from rankslice.views.bench_sections import scenario_section
    from rankslice.views.bench_tables import machine_warnings

    with Bars() as bars:
        ran = bench_scenario(
            folder,
            scenario,
            under=under,
            options=replace(options.run_options, frames=frames),
            launching=options.launching,
            on_prepared=partial(bars.counting, scenario),
        )
    section = scenario_section(ran.figures)
    parts = (section, machine_warnings(ran.bench))
    return _Results(ran.bench, parts, (section,), scenario_json(ran.figures))


def _measure(call: Callable[..., Bench], turns: list[Bench]) -> None:
    """Measure; after each turn, replace what the list has by the benchmark so far."""
    with progress_bars() as progress:
        bar = progress.add_task("building", total=None)

        def on_progress(step: str, done: int, total: int) -> None:
            progress.update(bar, description=step, completed=done, total=total)

        def on_turn(bench: Bench) -> None:
            turns[:] = [bench]

        call(on_progress=on_progress, on_turn=on_turn)


def _folders(targets: Sequence[str], against: str | None) -> tuple[Path, str | None]:
    if len(targets) > (2 if against is None else 1):
        expected = "expected one build folder, and what it is measured against"
        raise RankSliceError(Mistake("OUT", f"{len(targets)} are given", expected))
    return Path(targets[0]), against if len(targets) == 1 else targets[1]


def _outputs(folder: Path, out: Path | None) -> tuple[Path, Path]:
    """Return the files of raw values and of the page, after checking them."""
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
