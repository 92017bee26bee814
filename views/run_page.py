"""A run as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from rankslice.backend.runtime.summary.rates import latency_text
from rankslice.framework.wording import digits, joined, joules_text, ms_text
from rankslice.measurement.board_history import BoardHistory
from rankslice.measurement.summary import RunRecord, RunSummary
from rankslice.views.board_charts import hardware_section
from rankslice.views.content import UNKNOWN, Code, Figure, Notice, Page, Section, Table
from rankslice.views.run_parts import (
    MAX_CURVES,
    busy_figure,
    curves_figure,
    known,
    latency_histogram,
    millijoules_text,
    percentile_figure,
    percentiles,
    rank_table,
    rate_of,
)

_TIMES = ("mean", "p50", "p90", "p99", "max")


def run_page(record: RunRecord, histories: Sequence[BoardHistory] = ()) -> Page:
    summary = record.summary
    accelerators = joined([rank.key for rank in summary.ranks[:5]])
    more = len(summary.ranks) - 5
    where = f"{accelerators} and {more} more" if more > 0 else accelerators
    ended = f", {record.ended}" if record.ended else ""
    return Page(
        f"Run of {record.model}",
        f"on {where}{ended}",
        (
            Section("", parts=(Notice("Result", tuple(_result(record))),)),
            _latency(summary),
            _ranks(record),
            *([_energy(summary)] if summary.energy else []),
            hardware_section(summary, histories),
            _how(record),
        ),
    )


def _result(record: RunRecord) -> Iterator[str]:
    yield rate_of(record.summary)
    if dropped := record.summary.all_dropped:
        yield f"{dropped} arrivals dropped"
    if record.summary.completed:
        yield latency_text(record.summary.latency_ms)
    yield f"Bottleneck: {record.summary.bottleneck}"
    if record.verify:
        yield record.verify


def _latency(summary: RunSummary) -> Section:
    about = (
        "Latency counts from a frame's arrival until its results are out."
        " Percentiles are accurate to one per cent."
    )
    figures: tuple[Figure, ...] = ()
    if summary.latency_counts:
        figures = (
            percentile_figure("Latency by percentile", [("latency", summary)]),
            latency_histogram("Frames by latency", summary),
        )
    rows = tuple(
        (name, *(ms_text(times[kind]) for kind in _TIMES)) for name, times in _stages(summary)
    )
    head = ("milliseconds", *_TIMES)
    stages = Table("Mean and percentiles of each stage", head, rows)
    return Section("Latency", (about,), (*figures, stages))


def _stages(summary: RunSummary) -> Iterator[tuple[str, Mapping[str, float]]]:
    yield "preprocessing", summary.preprocess_ms
    for rank in summary.ranks:
        for figures, on in ((rank, ""), (rank.surge, " for a surge")):
            if figures is not None and figures.frames:
                yield f"{rank.name}{on}", figures.compute_ms
    yield "postprocessing", summary.postprocess_ms
    yield "end to end", summary.latency_ms


def _ranks(record: RunRecord) -> Section:
    ranks = record.summary.ranks
    curves = [
        (rank.name, percentiles(rank.compute_counts, rank.compute_ms["max"]))
        for rank in ranks[:MAX_CURVES]
        if rank.compute_counts
    ]
    figures = [busy_figure("Time of each rank", [(rank.name, rank) for rank in ranks])]
    if curves:
        figures.append(curves_figure("Computing, by percentile", curves, "compute, ms"))
    return Section("Ranks", record.notes, (*figures, rank_table(ranks)))


def _energy(summary: RunSummary) -> Section:
    rows = tuple(
        (
            board.board,
            known(board.joules, joules_text),
            known(board.mean_w, lambda watts: f"{digits(watts)} W"),
            known(board.mj_per_frame, millijoules_text),
            f"absent: {board.reason}" if board.joules is None else f"measured by {board.sensor}",
        )
        for board in summary.energy
    )
    about = ["Everything that a board's sensor covers, including idle power."]
    if any(board.rails for board in summary.energy):
        about.append("Rails are parts of it; a rail may contain another one.")
    head = ("board", "energy", "mean power", "per frame", "source")
    tables = Table("Energy by board", head, rows), _rail_table(summary)
    return Section("Energy", tuple(about), tuple(table for table in tables if table.rows))


def _rail_table(summary: RunSummary) -> Table:
    rows = tuple(
        (
            board.board,
            rail,
            joules_text(joules),
            known(board.seconds and joules / board.seconds, lambda watts: f"{digits(watts)} W"),
            known(board.rail_mj_per_frame(rail), lambda value: joules_text(value / 1e3)),
        )
        for board in summary.energy
        for rail, joules in board.rails.items()
    )
    head = ("board", "rail", "energy", "mean power", "per frame")
    return Table("Energy by rail", head, rows)


def _how(record: RunRecord) -> Section:
    typed = [Code("Command", shlex.join(record.command))] if record.command else []
    machines = tuple(
        (str(rank.rank), rank.host, rank.processor or UNKNOWN, str(len(rank.cores)), rank.engine)
        for rank in record.summary.ranks
    )
    tables = (
        Table("Conditions", ("condition", "value"), record.conditions),
        Table("Machines", ("rank", "host", "processor", "cores", "engine"), machines),
        Table("Versions", ("of", "version"), record.versions),
    )
    hashes = f"Model {record.model_sha256[:12]}, job {record.job_sha256[:12]} (SHA-256)."
    shown = tuple(table for table in tables if table.rows)
    return Section("How it was run", (hashes,), (*typed, *shown))
