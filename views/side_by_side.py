"""Runs side by side: their figures, what keeps them from being compared, how mappings differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from rankslice.framework.plan import Plan
from rankslice.framework.wording import fixed_text, joined, mb_text, ms_text, quoted
from rankslice.measurement.bench.bench_records import Bench
from rankslice.measurement.bench.series import Ratio
from rankslice.measurement.board_history import mode_differences
from rankslice.measurement.summary import RunRecord, RunSummary, percentile_ms, total_count
from rankslice.measurement.trace.traced_operators import PlacedRow
from rankslice.views.bench_tables import RATIO_HEAD, ratio_row
from rankslice.views.content import UNKNOWN, Table
from rankslice.views.run_parts import known, millijoules_text

_MIN_FOR_P999 = 10_000
"""Frames from which ten are beyond the 99.9th percentile."""
_MAX_MOVES = 12


@dataclass(frozen=True, slots=True)
class KeptRun:
    """The last run of a build folder."""

    name: str
    """Of the folder, as the user gave it."""
    record: RunRecord
    plan: Plan
    pages: tuple[tuple[str, str], ...] = ()
    """Other pages in the folder: what they show, and their paths."""


@dataclass(frozen=True, slots=True)
class KeptBench:
    """The last benchmark of a build folder."""

    name: str
    """Of the folder, as the user gave it."""
    bench: Bench | None
    """``None``: it could not be read."""
    ratios: tuple[Ratio, ...] = ()
    """Its figures over those of the first folder that has a benchmark."""
    notes: tuple[str, ...] = ()
    """What must be known to read them, or why there are none."""


@dataclass(frozen=True, slots=True)
class KeptOperators:
    """A table of operators in a file."""

    name: str
    """Of the file, as the user gave it."""
    rows: tuple[PlacedRow, ...]


def operators_table(tables: Sequence[KeptOperators]) -> Table:
    """Return a row for each operator, and a column of means for each accelerator.

    Operators are the same if their names and shapes are.
    """
    labels = {
        (table.name, row.board, row.accelerator): row.accelerator
        for table in tables
        for row in table.rows
    }
    if len({*labels.values()}) < len(labels):
        labels = {key: f"{key[0]}: {label}" for key, label in labels.items()}
    times: dict[tuple[str, str], dict[tuple[str, str, str], float]] = {}
    for table in tables:
        for placed in table.rows:
            by_accelerator = times.setdefault((placed.row.operator, placed.row.shapes), {})
            where = table.name, placed.board, placed.accelerator
            by_accelerator[where] = by_accelerator.get(where, 0.0) + placed.row.mean_ms
    rows = [
        (name, shapes, *(ms_text(taken[key]) if key in taken else UNKNOWN for key in labels))
        for (name, shapes), taken in times.items()
    ]
    sums = (sum(taken.get(key, 0.0) for taken in times.values()) for key in labels)
    total = "all operators", "", *map(ms_text, sums)
    head = "operator", "shapes", *labels.values()
    return Table("means in milliseconds", head, (*rows, total))


@dataclass(frozen=True, slots=True)
class RunsFigure:
    """One figure of every run."""

    name: str
    """With the unit."""
    values: tuple[float | None, ...]
    """By run; ``None``: unknown."""
    texts: tuple[str, ...]

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """The values over the first run's, but for the first run itself."""
        first, *others = self.values
        return tuple(value / first if value is not None and first else None for value in others)


_whole = partial(fixed_text, decimals=0)
_Value = Callable[[RunSummary], float | None]


def _time(field: str, key: str) -> _Value:
    """Return what gives a time of a run; a run without frames, as of a server, has none."""
    return lambda run: getattr(run, field)[key] if run.completed else None


_FIGURES: dict[str, tuple[_Value, Callable[[float], str]]] = {
    "throughput, frames/s": (lambda run: run.throughput_fps, fixed_text),
    "latency mean, ms": (_time("latency_ms", "mean"), ms_text),
    "latency p50, ms": (_time("latency_ms", "p50"), ms_text),
    "latency p90, ms": (_time("latency_ms", "p90"), ms_text),
    "latency p99, ms": (_time("latency_ms", "p99"), ms_text),
    "latency p99.9, ms": (lambda run: _p999(run), ms_text),
    "latency max, ms": (_time("latency_ms", "max"), ms_text),
    "preprocessing mean, ms": (_time("preprocess_ms", "mean"), ms_text),
    "slowest rank, compute mean, ms": (lambda run: _slowest(run), ms_text),
    "postprocessing mean, ms": (_time("postprocess_ms", "mean"), ms_text),
    "energy per frame": (lambda run: run.mj_per_frame, millijoules_text),
    "hottest zone, °C": (lambda run: _hottest(run), partial(fixed_text, decimals=1)),
    "memory of all ranks, MB": (lambda run: sum(r.memory_mb for r in run.ranks), mb_text),
    "memory of the largest rank, MB": (
        lambda run: max((r.memory_mb for r in run.ranks), default=None),
        mb_text,
    ),
    "ranks": (lambda run: len(run.ranks), _whole),
    "window": (lambda run: run.window, _whole),
    "dropped arrivals": (lambda run: run.all_dropped or None, _whole),
}


def _p999(run: RunSummary) -> float | None:
    is_known = total_count(run.latency_counts) >= _MIN_FOR_P999
    return percentile_ms(run.latency_counts, 99.9) if is_known else None


def _hottest(run: RunSummary) -> float | None:
    zones = [zone for board in run.hardware for zone in board.of("temperature_c").values()]
    return max((zone["max"] for zone in zones), default=None)


def _slowest(run: RunSummary) -> float | None:
    return max((rank.compute_ms["mean"] for rank in run.ranks if rank.frames), default=None)


def figures(runs: Sequence[KeptRun]) -> list[RunsFigure]:
    """Return the figures that at least one run has."""
    rows = []
    for name, (value_of, text_of) in _FIGURES.items():
        values = tuple(value_of(run.record.summary) for run in runs)
        texts = tuple(known(value, text_of) for value in values)
        if any(value is not None for value in values):
            rows.append(RunsFigure(name, values, texts))
    return rows


def figure_table(runs: Sequence[KeptRun]) -> Table:
    """Return the figures of all runs, and their ratios to the first."""
    first, *others = (run.name for run in runs)
    head = ("figure", first, *others, *(f"{other} / {first}" for other in others))
    rows = []
    for figure in figures(runs):
        ratios = (known(ratio, fixed_text) for ratio in figure.ratios)
        rows.append((figure.name, *figure.texts, *ratios))
    return Table("Figures, and ratios to the first", head, tuple(rows))


def benches_table(benches: Sequence[KeptBench]) -> Table:
    """Return the ratios of benchmarks to the first that could be read."""
    first = next((kept.name for kept in benches if kept.bench is not None), UNKNOWN)
    rows = tuple((kept.name, *ratio_row(ratio)) for kept in benches for ratio in kept.ratios)
    return Table(f"Ratios to {first}", ("benchmark", *RATIO_HEAD), rows)


def differences(runs: Sequence[KeptRun]) -> list[str]:
    """Return in what runs differ besides the mapping, a sentence each; empty: in nothing known."""
    sentences = [
        f"{run.name}: only the ranks' report of its last run is available, without the source and"
        " rate of the frames."
        for run in runs
        if not run.record.conditions
    ]
    recorded = [run for run in runs if run.record.conditions]
    models = {run.name: f"{run.record.model} ({run.record.model_sha256[:12]})" for run in runs}
    sentences += _unlike("The models", models)
    names = dict.fromkeys(name for run in recorded for name, _ in run.record.conditions)
    for name in names:
        values = {run.name: dict(run.record.conditions).get(name, "not given") for run in recorded}
        sentences += _unlike(name[:1].upper() + name[1:], values)
    modes = mode_differences({run.name: run.record.summary.modes for run in runs})
    sentences += [f"{clause[:1].upper()}{clause[1:]}." for clause in modes]
    for what, of_rank in (
        ("The processors", lambda rank: rank.processor or "unknown"),
        ("The engines", lambda rank: rank.engine),
    ):
        by_run = {run.name: sorted({*map(of_rank, run.record.summary.ranks)}) for run in runs}
        sentences += _unlike(what, {name: ", ".join(texts) for name, texts in by_run.items()})
    packages = dict.fromkeys(name for run in recorded for name, _ in run.record.versions)
    for name in packages:
        values = {run.name: dict(run.record.versions).get(name, "none") for run in recorded}
        sentences += _unlike(f"The versions of {name}", values)
    return sentences


def _unlike(what: str, values: Mapping[str, str]) -> Iterator[str]:
    if len(set(values.values())) > 1:
        of = {value: [n for n, v in values.items() if v == value] for value in values.values()}
        yield f"{what}: {'; '.join(f'{value} in {joined(names)}' for value, names in of.items())}."


def moves(first: Plan, other: Plan) -> list[str]:
    """List the layers that another plan has elsewhere, those that follow each other as one."""
    before, after = _places(first), _places(other)
    changes = [
        (layer, keys, after[layer])
        for layer, keys in before.items()
        if layer in after and after[layer] != keys
    ]
    order = {layer: number for number, layer in enumerate(before)}
    runs = groupby(
        enumerate(changes), lambda item: (order[item[1][0]] - item[0], item[1][1], item[1][2])
    )
    groups = [_move([change[0] for _, change in group], old, new) for (_, old, new), group in runs]
    more = len(groups) - _MAX_MOVES
    return [*groups[:_MAX_MOVES], *([f"and {more} more groups of layers"] if more > 0 else [])]


def _places(plan: Plan) -> dict[str, tuple[str, ...]]:
    places: dict[str, tuple[str, ...]] = {}
    for segment in plan.segments:
        for layer in plan.models_layers(segment.layers):
            places[layer] = (*places.get(layer, ()), plan.ranks[segment.rank].key)
    return places


def _move(layers: Sequence[str], old: Iterable[str], new: Iterable[str]) -> str:
    count = "one layer" if len(layers) == 1 else f"{len(layers)} layers"
    last = "" if len(layers) == 1 else f" to {quoted(layers[-1])}"
    return f"{count}, {quoted(layers[0])}{last}: {joined([*new])} instead of {joined([*old])}"
