"""Runs of several build folders as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.framework.wording import fixed_text, joined
from rankslice.measurement.bench.series import all_series
from rankslice.views.bench_tables import RATE_HEAD, rate_rows, ratio_figure
from rankslice.views.charts import Axis, Bar, bar_figure
from rankslice.views.content import UNKNOWN, Code, Figure, Html, Notice, Page, Section, Table
from rankslice.views.run_parts import (
    MAX_CURVES,
    busy_figure,
    percentile_figure,
    rank_table,
    rate_of,
)
from rankslice.views.side_by_side import (
    KeptBench,
    KeptOperators,
    KeptRun,
    benches_table,
    differences,
    figure_table,
    moves,
    operators_table,
)
from rankslice.views.svg import element

_ONE_RUN_EACH = (
    "These are single runs: a few per cent may be chance. rankslice bench measures repeatedly,"
    " in turns, and gives confidence intervals."
)


def report_page(
    runs: Sequence[KeptRun],
    benches: Sequence[KeptBench] = (),
    operators: Sequence[KeptOperators] = (),
) -> Page:
    models = [run.record.model for run in runs]
    models += [kept.bench.subjects[0].model for kept in benches if kept.bench is not None]
    count = f"{len(runs)} runs" if len(runs) > 1 else "one run" if runs else "benchmarks"
    of: list[KeptRun | KeptBench | KeptOperators] = [*runs, *benches, *operators]
    names = dict.fromkeys(kept.name for kept in of)
    sections = (
        *([Section("", parts=_notices(runs)), _figures(runs)] if runs else []),
        *([_benches(benches)] if benches else []),
        *([_mappings(runs), _runs(runs)] if runs else []),
        *([Section("Operators", parts=(operators_table(operators),))] if operators else []),
    )
    title = f"{joined([*dict.fromkeys(models)])}: {count}" if models else "Operators"
    return Page(title, joined([*names]), sections)


def _notices(runs: Sequence[KeptRun]) -> tuple[Notice, Notice]:
    results = tuple(f"{run.name}: {rate_of(run.record.summary)}" for run in runs)
    head = "These runs differ in more than the mapping, so ratios mix the reasons:"
    reasons = differences(runs) if len(runs) > 1 else []
    unlike = (head, *reasons) if reasons else ()
    return Notice("Result", results), Notice("Not comparable", unlike, "warning")


def _figures(runs: Sequence[KeptRun]) -> Section:
    summaries = [(run.name, run.record.summary) for run in runs]
    curves = [one for one in summaries[:MAX_CURVES] if one[1].latency_counts]
    rates = [(name, summary.throughput_fps or 0.0) for name, summary in summaries]
    bars = [Bar(name, (rate,), fixed_text(rate) if rate else UNKNOWN) for name, rate in rates]
    throughput = bar_figure("Throughput", bars, (), Axis("frames/s"))
    parts: list[Table | Figure] = [figure_table(runs), throughput]
    if curves:
        parts.append(percentile_figure("Latency by percentile", curves))
    ranks = [(name, rank) for name, summary in summaries for rank in summary.ranks]
    parts.append(busy_figure("Time of each rank", [(f"{n}: {r.name}", r) for n, r in ranks]))
    table = rank_table([rank for _, rank in ranks])
    rows = tuple((name, *row) for (name, _), row in zip(ranks, table.rows, strict=True))
    parts.append(Table(table.caption, ("run", *table.head), rows))
    return Section("Figures", (_ONE_RUN_EACH,), tuple(parts))


def _benches(benches: Sequence[KeptBench]) -> Section:
    read = [(kept.name, kept.bench) for kept in benches if kept.bench is not None]
    rates = tuple(
        (name, *row) for name, bench in read for row in rate_rows(bench, all_series(bench))
    )
    texts = tuple(f"{kept.name}: {note}" for kept in benches for note in kept.notes)
    parts: list[Table | Figure] = [
        Table("Rates and mean latencies", ("benchmark", *RATE_HEAD), rates)
    ]
    ratios = [(kept.name, ratio) for kept in benches for ratio in kept.ratios]
    if ratios:
        table = benches_table(benches)
        named = [(f"{name}, {one.load}: {one.figure}", one) for name, one in ratios]
        parts += [table, ratio_figure(f"{table.caption}, 95 % intervals", named)]
    return Section("Benchmarks", texts, tuple(parts))


def _mappings(runs: Sequence[KeptRun]) -> Section:
    rows = []
    for run in runs:
        for number, rank in enumerate(run.plan.ranks):
            segments = run.plan.of_rank(number)
            layers = [*run.plan.models_layers(name for part in segments for name in part.layers)]
            ends = " … ".join(dict.fromkeys((layers[0], layers[-1]))) if layers else UNKNOWN
            counts = str(len(segments)), str(len(layers))
            rows.append((run.name, str(number), rank.key, *counts, ends))
    head = ("run", "rank", "accelerator", "segments", "layers", "first and last layer")
    texts: list[str] = []
    first, *others = runs
    for run in others:
        if run.plan.model.sha256 != first.plan.model.sha256:
            texts.append(f"{run.name} has another model than {first.name}.")
            continue
        changes = moves(first.plan, run.plan)
        same = f"{run.name} has every layer where {first.name} has it."
        texts += [f"{run.name}: {move}" for move in changes] or [same]
    return Section("Mappings", tuple(texts), (Table("Layers per rank", head, tuple(rows)),))


def _runs(runs: Sequence[KeptRun]) -> Section:
    parts: list[Code | Html | Table] = []
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
    links = [
        element("li", element("a", f"{what} of {run.name}", href=address))
        for run in runs
        for what, address in run.pages
    ]
    if links:
        parts.append(Html(element("ul", *links)))
    return Section("The runs", parts=tuple(parts))
