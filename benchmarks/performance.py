"""What direct channels must show, in one table: ``make bench``.

Short runs of the other benchmarks, each beside its reference. The table is printed, and written
with a plot per row into a folder. What cannot be measured here is said. Longer runs, and more
of what they show, are the scripts' own (README.md).

    python benchmarks/performance.py --rows channels idle
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import boards_throughput
import channel_time
import memory
import numpy as np
import window_of_one
from across_boards import RATE_MBIT, exit_without_boards
from channel_time import DORA, FIFO, JOB, LATENCY, RAW, ZENOH, limits_us, medians_us
from front_end import BUILT, COPIED, measure as measure_front_end, write_mapping
from gaps import MIN_SUMMED
from pipeline_efficiency import (
    LOOP_BY_HAND,
    PIPELINE,
    SLOWER_STAGE,
    Case,
    default_mapping,
    model_of,
)
from plotting import new_figure, save_figure
from runtime_overhead import IDLE_FPS, run_pipeline, sleeping_ranks
from timing import Interval, console, machine, print_table, ratios, spread

from rankslice.framework.errors import RankSliceError
from rankslice.networks.zoo import zoo_model


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement of a row."""

    label: str
    measured: Interval
    limit: float | None = None
    """What it must not exceed, or fall below; ``None``: it is stated only."""
    reference: Interval | None = None
    is_met: bool | None = None
    """By default whether the median keeps the limit."""


@dataclass(frozen=True, slots=True)
class Row:
    """Measurements with one unit and one target."""

    name: str
    """That of the plot's file."""
    title: str
    target: str
    points: Sequence[Point]
    reference: str = ""
    at_least: bool = False
    """Whether limits are lower ones."""
    digits: int = 0

    def verdict(self, point: Point) -> str:
        """Return whether a point keeps its limit."""
        if point.limit is None:
            return ""
        middle = point.measured.value
        kept = middle >= point.limit if self.at_least else middle <= point.limit
        return "met" if (kept if point.is_met is None else point.is_met) else "missed"


def channels() -> Iterator[Row]:
    """Measure channels on one board: until the receiver can run, and has summed all bytes."""
    names = (JOB, LATENCY, FIFO, RAW)
    results = channel_time.measure(names, tuple(channel_time.SIZES), channel_time.GAPS_MS, 3)
    ready, faster, summed, early, share = [], [], [], [], []
    for case, turns in results.items():
        job, fifo, raw, latency = (medians_us(turns[name]) for name in (JOB, FIFO, RAW, LATENCY))
        limits = limits_us(turns[FIFO])
        label = f"{case.size}, {case.gap_ms:g} ms"
        if spread(turn.gap_ms for turn in turns[JOB]).value < 1.2 * case.gap_ms:
            is_met = bool(np.median(np.subtract(job, limits)) <= 0)
            limit = spread(limits).value
            ready.append(Point(label, spread(job), limit, spread(fifo), is_met))
        else:
            ready.append(Point(f"{label}: not sustained", spread(job), None, spread(fifo)))
        if np.median(np.divide(raw, limits)) >= 10:
            faster.append(Point(label, ratios(raw, job), 10.0))
        if channel_time.SIZES[case.size] >= MIN_SUMMED:
            until = [spread(turn.summed_median_us for turn in turns[name]) for name in (JOB, RAW)]
            summed.append(Point(label, until[0], None, until[1]))
        early.append(Point(label, spread(latency), 10.0, spread(job)))
        used = spread(100 * turn.cpu_share for turn in turns[LATENCY])
        share.append(Point(label, used, 4.0))
    title, target = "channel, send to ready-to-run, us", "<= 1.2 FIFO + 30 us"
    yield Row("channels", title, target, ready, "bare FIFO")
    title = "raw MPI ping-pong / channel, where raw takes >= 10 times the limit"
    yield Row("raw", title, ">= 10", faster, at_least=True, digits=1)
    yield Row("summed", "channel until all bytes are summed, us", "", summed, "raw MPI and sum")
    yield Row("latency", "channel with --latency, us", "<= 10", early, "without", digits=1)
    yield Row("latency-share", "its receiver, % of a core", "<= 4", share, digits=2)


def peers() -> Iterator[Row]:
    """Measure dora and zenoh beside a channel."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        programs = channel_time.peers_environment(Path(folder))
        if programs is None:
            sys.exit("zenoh and dora cannot be installed")
        names = (JOB, FIFO, ZENOH, DORA)
        results = channel_time.measure(names, ("4k", "3M"), (10.0,), 3, peers=programs)
    for peer, least in ((DORA, 5.0), (ZENOH, 2.0)):
        points = [
            Point(case.size, ratios(medians_us(turns[peer]), medians_us(turns[JOB])), least)
            for case, turns in results.items()
        ]
        title = f"{peer} / channel, a frame each 10 ms"
        yield Row(peer, title, f">= {least:g}", points, at_least=True, digits=2)


def runtime() -> Iterator[Row]:
    """Measure the runtime's own processor time."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        job = sleeping_ranks(Path(folder), 0)
        runs = [run_pipeline(job, 4000) for _ in range(5)]
        idle = run_pipeline(sleeping_ranks(Path(folder), 0.001), round(30 * IDLE_FPS), IDLE_FPS)
    used = [
        Point(f"rank {rank}", spread(1e3 * run.cpu_ms[rank] for run in runs), 50.0)
        for rank in (0, 1)
    ]
    yield Row("runtime", "processor time per frame, null engine, 4 kB, us", "<= 50", used)
    share = [
        Point(f"rank {rank}", spread([100 * share]), 0.3)
        for rank, share in enumerate(idle.cpu_share)
    ]
    yield Row("idle", "idle rank, % of a core", "<= 0.3", share, digits=2)


def pipelines() -> Iterator[Row]:
    """Measure pipelines of two ranks against their stages, and against a loop by hand."""
    to_stage, to_loop = [], []
    for network, least, turns, turn_s in (
        ("squeezenet", 0.97, 40, 0.4),
        ("mobilenetv2.tflite", 0.97, 40, 0.4),
        ("resnet50", 0.985, 30, 1.0),
    ):
        with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
            model = model_of(network)
            case = Case(Path(folder), model, default_mapping(network, model))
            contestants = case.in_turns(turns, turn_s, by_hand=True, whole=False)
        rates = {contestant.name: contestant.rates() for contestant in contestants}
        stage = ratios(rates[PIPELINE], rates[SLOWER_STAGE])
        loop = ratios(rates[LOOP_BY_HAND], rates[SLOWER_STAGE])
        to_stage.append(Point(network, stage, least, loop))
        by_hand = ratios(rates[PIPELINE], rates[LOOP_BY_HAND])
        to_loop.append(Point(f"{network}, 2 ranks", by_hand, 1.0))
    yield Row(
        "pipelines",
        "rate of two ranks / slower stage",
        ">= 0.97, 0.985",
        to_stage,
        "loop by hand",
        at_least=True,
        digits=3,
    )
    title = "rate / bare mpi4py loop"
    yield Row("by-hand", title, ">= 1.0", to_loop, at_least=True, digits=3)


def hops() -> Iterator[Row]:
    """Measure one frame at a time."""
    ranks = [2, 4] + [8] * (len(os.sched_getaffinity(0)) >= 8)
    points = []
    for chain, hops in window_of_one.measure(window_of_one.NETWORKS, ranks, 3).items():
        beyond = np.median([hop.hop_us - hop.limit_us for hop in hops])
        points.append(
            Point(
                f"{chain.network}, {chain.ranks} ranks",
                spread(hop.hop_us for hop in hops),
                spread(hop.limit_us for hop in hops).value,
                spread(hop.fifo_us for hop in hops),
                bool(beyond <= 0),
            )
        )
    title = "one frame at a time: a hop beyond the stages, us"
    yield Row("hops", title, "<= 60, or 1.2 FIFO + 30 us", points, "bare FIFO")


def pages() -> Iterator[Row]:
    """Measure memory."""
    points = []
    for (network, ranks), pairs in memory.measure(memory.CASES, 2).items():
        direct, old = ([pair[way] for pair in pairs] for way in (0, 1))
        label = f"{network}, {ranks} ranks"
        points.append(Point(label, spread(direct), spread(old).value, spread(old)))
    yield Row("memory", "sum of the ranks' PSS, MB", "less", points, "--no-direct", digits=1)


def front_end() -> Iterator[Row]:
    """Measure the slicing of VGG-19."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        model = zoo_model("vgg19")
        mapping = write_mapping(model, Path(folder) / "mapping.json")
        seconds = measure_front_end(model, mapping, Path(folder), 5)
    share = ratios(seconds[BUILT], seconds[COPIED])
    point = Point("VGG-19 with hashes", share, 4.0)
    yield Row("front-end", "front end / cp", "<= 4", [point], digits=2)


def boards() -> Iterator[Row]:
    """Measure pipelines over virtual boards."""
    exit_without_boards()
    times = boards_throughput.measure((1, 2, 4, 8), 100, 2, rate_mbit=RATE_MBIT)
    points = [
        Point(
            f"{pipeline.boards} boards",
            boards_throughput.shares_of(pipeline, frames_ms),
            0.96 if pipeline.boards == 8 else None,
        )
        for pipeline, frames_ms in times.items()
    ]
    title = "rate over virtual boards x bottleneck"
    yield Row("boards", title, ">= 0.96 at 8", points, at_least=True, digits=3)


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "channels": channels,
    "peers": peers,
    "runtime": runtime,
    "pipelines": pipelines,
    "hops": hops,
    "memory": pages,
    "front-end": front_end,
    "boards": boards,
}


def draw(row: Row, folder: Path) -> None:
    """Write a plot of a row: medians and ranges, references, limits."""
    figure, axes = new_figure(6.4, 1.1 + 0.24 * len(row.points))
    for place, point in enumerate(row.points):
        middle = point.measured.value
        errors = [[middle - point.measured.low], [point.measured.high - middle]]
        axes.errorbar(middle, place, xerr=errors, fmt="o", ms=4, color="C0", label="measured")
        if point.reference is not None:
            axes.plot(point.reference.value, place, "x", color="0.5", label=row.reference)
        if point.limit is not None:
            axes.plot(point.limit, place, "|", ms=12, color="C3", label="limit")
    values = [point.measured.value for point in row.points]
    if min(values) > 0 and max(values) > 20 * min(values):
        axes.set_xscale("log")
    axes.set_yticks(range(len(row.points)), [point.label for point in row.points])
    axes.invert_yaxis()
    title = f"{row.title}\ntarget: {row.target}" if row.target else row.title
    axes.set_title(title, loc="left", fontsize=9)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles, frameon=False, fontsize=8)
    save_figure(figure, [folder / f"{row.name}.svg"])


def lines_of(row: Row) -> Iterator[tuple[str, ...]]:
    """Return a line of the table for each point."""
    for number, point in enumerate(row.points):
        beside = point.reference.text(row.digits) if point.reference else ""
        yield (
            row.title if number == 0 else "",
            point.label,
            point.measured.text(row.digits),
            f"{row.reference}: {beside}" if beside else "",
            row.target if point.limit is not None else "",
            row.verdict(point),
        )


COLUMNS = ("row", "case", "median (95 %)", "reference", "target", "")


def write_markdown(path: Path, lines: Sequence[Sequence[str]]) -> None:
    """Write the table as docs have it."""
    rows = (COLUMNS, ("---",) * len(COLUMNS), *lines)
    path.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows), encoding="utf-8")


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--rows", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    add("--out", type=Path, default=Path("bench"), help="folder for plots and the table")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    console.print(machine())
    lines: list[tuple[str, ...]] = []
    for name in args.rows:
        begin_s = time.monotonic()
        try:
            for row in PARTS[name]():
                if row.points:
                    draw(row, args.out)
                lines += lines_of(row)
        except (SystemExit, RankSliceError) as error:
            lines.append((name, "", f"not measured: {error}", "", "", ""))
        console.print(f"{name}: {time.monotonic() - begin_s:.0f} s", style="dim")
        write_markdown(args.out / "table.md", lines)
    print_table("Medians, with the least and the greatest", COLUMNS, lines)
    console.print(f"{machine()}\nplots and table.md: {args.out}")


if __name__ == "__main__":
    main()
