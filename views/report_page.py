"""Runs of several build folders as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rankslice.backend.runtime.summary.texts import frames_text
from rankslice.framework.files.templates import render_markup
from rankslice.framework.wording import joined
from rankslice.measurement.rank_table import RANK_CAPTION, RANK_NAMES, UNKNOWN, rank_table
from rankslice.views.charts import Axis, Bar, stacked_bars
from rankslice.views.kept_bench import KeptBench, bench_section
from rankslice.views.page import Code, Figure, Markup, Notice, Page, Section, Table
from rankslice.views.run_parts import (
    busy_figure,
    frames_sentence,
    percentile_figure,
)
from rankslice.views.side_by_side import KeptRun, differences, figures, moves

_MAX_CURVES = 8
ONE_RUN_EACH = (
    "These are single runs: a few per cent may be chance. rankslice bench measures repeatedly,"
    " in turns, and gives confidence intervals."
)


def report_page(runs: Sequence[KeptRun], benches: Sequence[KeptBench] = ()) -> Page:
    """Return the page of several runs, and of the benchmarks in their folders."""
    models = list(dict.fromkeys(run.record.model for run in runs))
    names = [run.name for run in runs]
    return Page(
        f"{joined(models)}: {len(runs)} runs" if len(runs) > 1 else f"{models[0]}: one run",
        joined(names),
        (
            Section("", parts=tuple(_notices(runs))),
            _figures(runs),
            *([bench_section(benches)] if benches else []),
            _mappings(runs),
            _each(runs),
        ),
    )


def figure_head(runs: Sequence[KeptRun]) -> tuple[str, ...]:
    """Return the head of a table of figures."""
    first, *others = (run.name for run in runs)
    return ("figure", first, *others, *(f"{other} / {first}" for other in others))


def _notices(runs: Sequence[KeptRun]) -> list[Notice]:
    found = differences(runs) if len(runs) > 1 else []
    told = [f"{run.name}: {frames_sentence(run.record.summary)}" for run in runs]
    notices = [Notice("Result", tuple(told))]
    if found:
        head = "These runs differ in more than the mapping, so ratios mix the reasons:"
        notices.append(Notice("Not comparable", (head, *found), warns=True))
    return notices


def _figures(runs: Sequence[KeptRun]) -> Section:
    head = figure_head(runs)
    rows = tuple(figure.cells for figure in figures(runs))
    summaries = [(run.name, run.record.summary) for run in runs]
    curves = [each for each in summaries[:_MAX_CURVES] if each[1].latency_counts]
    parts: list[Table | Figure] = [
        Table("Figures, and ratios to the first", head, rows, tuple(range(1, len(head)))),
        _rates(runs),
    ]
    if curves:
        parts.append(percentile_figure("Latency by percentile", curves))
    ranks = [(name, rank) for name, summary in summaries for rank in summary.ranks]
    parts.append(busy_figure("Time of each rank", [(f"{n}: {r.name}", r) for n, r in ranks]))
    head, cells = rank_table([rank for _, rank in ranks])
    rows = tuple((name, *each) for (name, _), each in zip(ranks, cells, strict=True))
    right = tuple(range(RANK_NAMES + 1, len(head) + 1))
    parts.append(Table(RANK_CAPTION, ("run", *head), rows, right))
    return Section("Figures", (ONE_RUN_EACH,), tuple(parts))


def _rates(runs: Sequence[KeptRun]) -> Figure:
    known = [(run.name, run.record.summary.throughput_fps or 0.0) for run in runs]
    bars = [Bar(name, (rate,), f"{rate:.2f}" if rate else UNKNOWN) for name, rate in known]
    rows = tuple((bar.name, bar.text) for bar in bars)
    table = Table("Throughput", ("run", "frames/s"), rows, (1,))
    return Figure("Throughput", stacked_bars(bars, (), Axis("frames/s")), table)


def _mappings(runs: Sequence[KeptRun]) -> Section:
    rows = tuple(
        (
            run.name,
            str(number),
            rank.key,
            str(len(run.plan.of_rank(number))),
            str(sum(len(segment.layers) for segment in run.plan.of_rank(number))),
            _ends(run, number),
        )
        for run in runs
        for number, rank in enumerate(run.plan.ranks)
    )
    head = ("run", "rank", "accelerator", "segments", "layers", "first and last layer")
    texts: list[str] = []
    first, *others = runs
    for run in others:
        if run.plan.model.sha256 != first.plan.model.sha256:
            texts.append(f"{run.name} has another model than {first.name}.")
            continue
        found = moves(first.plan, run.plan)
        same = f"{run.name} has every layer where {first.name} has it."
        texts += [f"{run.name}: {move}" for move in found] or [same]
    return Section("Mappings", tuple(texts), (Table("Layers per rank", head, rows, (1, 3, 4)),))


def _ends(run: KeptRun, rank: int) -> str:
    layers = [layer for segment in run.plan.of_rank(rank) for layer in segment.layers]
    return " … ".join(dict.fromkeys((layers[0], layers[-1]))) if layers else UNKNOWN


def _each(runs: Sequence[KeptRun]) -> Section:
    """Return what is known of each run, and where its other pages are."""
    parts: list[Code | Markup | Table] = []
    names = dict.fromkeys(name for run in runs for name, _ in run.record.conditions)
    rows = [
        ("ended", *(run.record.ended or UNKNOWN for run in runs)),
        ("frames", *(frames_text(run.record.summary.completed) for run in runs)),
        *((n, *(dict(run.record.conditions).get(n, UNKNOWN) for run in runs)) for n in names),
        ("bottleneck", *(run.record.summary.bottleneck for run in runs)),
        ("verify", *(run.record.verify or UNKNOWN for run in runs)),
    ]
    head = ("of the run", *(run.name for run in runs))
    parts.append(Table("Conditions and findings", head, tuple(rows)))
    for run in runs:
        if run.record.command:
            parts.append(Code(f"Command of {run.name}", shlex.join(run.record.command)))
    if any(run.pages for run in runs):
        parts.append(Markup(render_markup("page_links.html.j2", runs=runs)))
    return Section("The runs", parts=tuple(parts))
