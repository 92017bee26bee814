"""A run as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rankslice.framework.quantities import joules_text
from rankslice.framework.wording import digits, joined
from rankslice.measurement.hardware import BoardHistory
from rankslice.measurement.runs.record import RunRecord
from rankslice.views.board_charts import hardware_section
from rankslice.views.page import Code, Figure, Notice, Page, Section, Table
from rankslice.views.run_parts import (
    TIMES_HEAD,
    UNKNOWN,
    busy_figure,
    curves_figure,
    frames_sentence,
    histogram_figure,
    mb_text,
    ms_text,
    percentile_figure,
    percentiles,
    rank_name,
    times_row,
)

_MOST_CURVES = 8


def run_page(record: RunRecord, histories: Sequence[BoardHistory] = ()) -> Page:
    """Return the page of a run."""
    accelerators = joined([rank.key for rank in record.ranks[:5]])
    more = len(record.ranks) - 5
    where = f"{accelerators} and {more} more" if more > 0 else accelerators
    ended = f", {record.ended}" if record.ended else ""
    return Page(
        f"Run of {record.model}",
        f"on {where}{ended}",
        (
            Section("", parts=(Notice("Result", tuple(_result(record))),)),
            _latency(record),
            _ranks(record),
            _energy(record),
            hardware_section(record, histories),
            _how(record),
        ),
    )


def _result(record: RunRecord) -> Iterator[str]:
    yield frames_sentence(record)
    if record.completed:
        names = ("p50", "p90", "p99", "max")
        shown = [f"{name} {ms_text(getattr(record.latency_ms, name))} ms" for name in names]
        yield f"latency {', '.join(shown)}"
    yield f"bottleneck: {record.bottleneck}"
    if record.verify:
        yield record.verify


def _latency(record: RunRecord) -> Section:
    about = (
        "Latency counts from a frame's arrival until its results are out."
        " Percentiles are accurate to one per cent."
    )
    figures: tuple[Figure, ...] = ()
    if record.latency_counts:
        figures = (
            percentile_figure("Latency by percentile", [("latency", record)]),
            histogram_figure(
                "Frames by latency",
                *(record.latency_counts, record.latency_ms, "latency, ms"),
            ),
        )
    stages = Table(
        "Mean and percentiles of each stage",
        TIMES_HEAD,
        (
            times_row("preprocessing", record.preprocess_ms),
            *(
                times_row(f"{name}{on}", times)
                for rank in record.ranks
                for name, on, times in (
                    (rank_name(rank), "", rank.compute_ms if rank.frames else None),
                    (rank_name(rank), " for a surge", rank.surge_ms if rank.surge_frames else None),
                )
                if times is not None
            ),
            times_row("postprocessing", record.postprocess_ms),
            times_row("end to end", record.latency_ms),
        ),
        (1, 2, 3, 4, 5),
    )
    return Section("Latency", (about,), (*figures, stages))


def _ranks(record: RunRecord) -> Section:
    gpu = any(rank.gpu_memory_mb is not None for rank in record.ranks)
    head = (
        *("rank", "accelerator", "frames", "compute p50", "p99", "wait", "send", "CPU"),
        *("memory, MB", *(["of the GPU, MB"] if gpu else [])),
    )
    rows = tuple(
        (
            *(str(rank.rank), rank.key),
            f"{rank.frames}" if rank.turns == "all" else f"{rank.frames} ({rank.turns})",
            *(ms_text(rank.compute_ms.p50), ms_text(rank.compute_ms.p99), ms_text(rank.wait_ms)),
            *(ms_text(rank.send_ms), ms_text(rank.cpu_ms), mb_text(rank.memory_mb)),
            *([mb_text(rank.gpu_memory_mb)] if gpu else []),
        )
        for rank in record.ranks
    )
    table = Table("Milliseconds per frame", head, rows, tuple(range(2, len(head))))
    named = [(rank_name(rank), rank) for rank in record.ranks]
    curves = [
        (name, percentiles(rank.compute_counts, rank.compute_ms.max))
        for name, rank in named[:_MOST_CURVES]
        if rank.compute_counts
    ]
    figures = [busy_figure("Time of each rank", named)]
    if curves:
        figures.append(curves_figure("Computing, by percentile", curves, "compute, ms"))
    return Section("Ranks", record.notes, (*figures, table))


def _energy(record: RunRecord) -> Section:
    rows = tuple(
        (
            board.board,
            UNKNOWN if board.joules is None else joules_text(board.joules),
            UNKNOWN if board.mean_w is None else f"{digits(board.mean_w)} W",
            UNKNOWN if board.mj_per_frame is None else joules_text(board.mj_per_frame / 1e3),
            f"absent: {board.reason}" if board.joules is None else f"measured by {board.sensor}",
        )
        for board in record.energy
    )
    about = ("Everything that a board's sensor covers, including idle power.",) if rows else ()
    head = ("board", "energy", "mean power", "per frame", "source")
    return Section("Energy", about, (Table("Energy by board", head, rows, (1, 2, 3)),))


def _how(record: RunRecord) -> Section:
    typed = [Code("Command", shlex.join(record.command))] if record.command else []
    machines = tuple(
        (str(rank.rank), rank.host, rank.processor or UNKNOWN, str(rank.cores), rank.engine)
        for rank in record.ranks
    )
    tables = (
        Table("Conditions", ("condition", "value"), record.conditions),
        Table("Machines", ("rank", "host", "processor", "cores", "engine"), machines, (3,)),
        Table("Versions", ("of", "version"), record.versions),
    )
    hashes = f"Model {record.model_sha256[:12]}, job {record.job_sha256[:12]} (SHA-256)."
    shown = tuple(table for table in tables if table.rows)
    return Section("How it was run", (hashes,), (*typed, *shown))
