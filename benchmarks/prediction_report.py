"""What was predicted and measured of mappings, as files, tables and a plot."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from plotting import new_figure, save_figure
from timing import console, print_table

from rankslice.exploration.cost.prediction import Prediction
from rankslice.measurement.summary import RunSummary

Floats: TypeAlias = NDArray[np.float64]

TARGET_ERROR, TARGET_CORRELATION = 0.10, 0.9
NETWORKS = ("resnet50", "mobilenetv2", "densenet121")

PARTS = {
    "run": "two ranks",
    "sleep": "3 to 6 sleeping ranks",
    "boards": "2 to 6 sleeping ranks on 2 to 4 boards",
    "over-boards": "two ranks on two boards",
}
"""What mappings of a part are run as."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one run of a mapping showed; times are means per frame, by rank."""

    fps: float
    compute_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]
    """Processor time of all threads."""
    wait_ms: tuple[float, ...]
    send_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping: what was predicted of it, and what its runs showed."""

    network: str
    part: str
    """One of :data:`PARTS`."""
    number: int
    assignment: tuple[int, ...]
    """Device of each layer."""
    sleeps_ms: tuple[float, ...] = ()
    """What each rank sleeps for instead of computing; empty: they compute."""
    segments: int = 0
    predicted_fps: float = 0.0
    predicted_ms: tuple[float, ...] = ()
    """Computing, by rank."""
    around_ms: tuple[float, ...] = ()
    """What else is predicted to keep ranks busy: copies, and the runtime."""
    bottleneck: str = ""
    simulated_fps: float | None = None
    rounds: tuple[Round, ...] = field(default=())

    @property
    def measured_fps(self) -> float:
        """Median of the rounds."""
        return median(done.fps for done in self.rounds)

    @property
    def off(self) -> float:
        """By which share of the measured rate the predicted one is off."""
        return self.predicted_fps / self.measured_fps - 1


def round_of(summary: RunSummary) -> Round:
    """Return what a run showed."""
    ranks = summary.ranks
    return Round(
        summary.throughput_fps,
        tuple(rank.compute_ms["mean"] for rank in ranks),
        tuple(rank.cpu_ms for rank in ranks),
        tuple(rank.wait_ms for rank in ranks),
        tuple(rank.send_ms for rank in ranks),
    )


def with_prediction(record: dict[str, Any], predicted: Prediction) -> dict[str, Any]:
    """Return a record's fields with those of a prediction."""
    return record | {
        "segments": len(predicted.segments),
        "predicted_fps": predicted.throughput_fps,
        "predicted_ms": tuple(1e3 * device.compute_s for device in predicted.devices),
        "around_ms": tuple(
            1e3 * (device.busy_s - device.compute_s) for device in predicted.devices
        ),
        "bottleneck": predicted.bottleneck,
    }


def _path(folder: Path, network: str, part: str, number: int) -> Path:
    return folder / f"{network}.{part}-{number:02}.json"


def known(folder: Path, network: str, part: str, number: int) -> Record | None:
    """Return what is known of a mapping; ``None``: it was never looked at."""
    path = _path(folder, network, part, number)
    return _read(path) if path.exists() else None


def _read(path: Path) -> Record:
    record = json.loads(path.read_text())
    rounds = tuple(
        Round(**{k: _hashable(v) for k, v in values.items()}) for values in record["rounds"]
    )
    return Record(**{k: _hashable(v) for k, v in record.items()} | {"rounds": rounds})


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def keep(folder: Path, record: Record) -> None:
    """Write what is known of a mapping."""
    path = _path(folder, record.network, record.part, record.number)
    path.write_text(json.dumps(asdict(record), indent=1) + "\n")
    if record.rounds:
        console.print(
            f"{path.stem}: {record.predicted_fps:.2f} frames/s predicted,"
            f" {record.rounds[-1].fps:.2f} measured",
            style="dim",
        )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's correlation of two lists."""
    from scipy.stats import spearmanr

    return float(spearmanr(one, other).statistic)


def report(folder: Path, picture: Path | None, residual: float) -> None:
    """Print what was found, and draw it.

    Args:
        folder: where records are.
        picture: a file to draw into, .svg or .png.
        residual: predictions that are off by more than this share are looked into.
    """
    records = [_read(path) for path in sorted(folder.glob("*-[0-9][0-9].json"))]
    records = [record for record in records if record.rounds]
    groups = [
        [record for record in records if (record.network, record.part) == group]
        for group in sorted({(record.network, record.part) for record in records})
    ]
    print_table(
        "Predicted against measured rates",
        (
            *("mappings", "number", "rounds", "frames/s", "mean error", "bias", "largest"),
            *("simulator's mean error", "rank correlation"),
        ),
        [_row(records) for records in groups],
    )
    print_table(
        "One round of the same mappings against another",
        (
            *("mappings", "mean difference", "rank correlation of two rounds"),
            "of one with the median of the others",
        ),
        [_repeated(records) for records in groups if len(_rates(records)) > 1],
    )
    print_table(
        f"Mappings whose prediction is off by more than {100 * residual:.0f} %: what of it is due"
        " to the slowest rank's computing, and to what is around it",
        ("mapping", "off", "predicted to limit", "rank", "computing", "around", "waiting"),
        [_residual(record) for record in records if abs(record.off) > residual],
    )
    console.print(
        f"aims: a mean error of at most {100 * TARGET_ERROR:.0f} %, a rank correlation of at least"
        f" {TARGET_CORRELATION}"
    )
    if picture is not None:
        draw(records, picture)


def _name(records: Sequence[Record]) -> str:
    return f"{records[0].network}, {PARTS[records[0].part]}"


def _row(records: Sequence[Record]) -> tuple[str, ...]:
    off = np.array([record.off for record in records])
    measured = [record.measured_fps for record in records]
    counts = sorted({len(record.rounds) for record in records})
    return (
        _name(records),
        str(len(records)),
        "-".join(map(str, (counts[0], counts[-1])[: len(counts)])),
        f"{min(measured):.1f}-{max(measured):.1f}",
        f"{100 * np.abs(off).mean():.1f} %",
        f"{100 * off.mean():+.1f} %",
        f"{100 * np.abs(off).max():.1f} %",
        _simulators_error(records),
        f"{rank_correlation([record.predicted_fps for record in records], measured):.3f}",
    )


def _simulators_error(records: Sequence[Record]) -> str:
    off = [r.simulated_fps / r.measured_fps - 1 for r in records if r.simulated_fps is not None]
    return f"{100 * np.abs(off).mean():.1f} %" if off else "-"


def _rates(records: Sequence[Record]) -> Floats:
    """Return the rates of those rounds that all mappings have, (rounds, mappings)."""
    count = min(len(record.rounds) for record in records)
    return np.array([[done.fps for done in record.rounds[:count]] for record in records]).T


def _repeated(records: Sequence[Record]) -> tuple[str, ...]:
    """Return how far rounds of the same mappings agree."""
    rates = _rates(records)
    pairs = list(itertools.combinations(rates, 2))
    difference = np.mean([np.abs(one / other - 1).mean() for one, other in pairs])
    others = [np.median(np.delete(rates, number, axis=0), axis=0) for number in range(len(rates))]
    return (
        _name(records),
        f"{100 * difference:.1f} %",
        " ".join(f"{rank_correlation(one, other):.3f}" for one, other in pairs),
        " ".join(
            f"{rank_correlation(one, other):.3f}" for one, other in zip(rates, others, strict=True)
        ),
    )


def _residual(record: Record) -> tuple[str, ...]:
    """Return what of a prediction's error which term has, as shares of the time per frame."""
    period_ms = 1e3 / record.measured_fps
    compute_ms, wait_ms = (
        np.median([getattr(done, name) for done in record.rounds], axis=0)
        for name in ("compute_ms", "wait_ms")
    )
    slowest = int(np.argmax(compute_ms))
    computing = record.predicted_ms[slowest] - compute_ms[slowest]
    around = record.around_ms[slowest] - (period_ms - compute_ms[slowest])
    return (
        f"{record.network}.{record.part}-{record.number:02}, {record.segments} segments",
        f"{100 * record.off:+.1f} %",
        record.bottleneck,
        f"{slowest}: {compute_ms[slowest]:.2f} of {period_ms:.2f} ms",
        f"{-100 * computing / period_ms:+.1f} %",
        f"{-100 * around / period_ms:+.1f} %",
        f"{100 * wait_ms[slowest] / period_ms:.0f} %",
    )


_COLOURS = dict(zip(NETWORKS, ("#4269d0", "#e2711d", "#3a9d5d"), strict=True))
_MARKS = {"run": "o", "sleep": ".", "boards": "s", "over-boards": "D"}


def draw(records: Sequence[Record], file: Path) -> None:
    """Draw a point for each mapping, on logarithmic axes."""
    figure, axes = new_figure(6.4, 5)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.network, record.part), []).append(record)
    for (network, part), group in groups.items():
        axes.scatter(
            [record.predicted_fps for record in group],
            [record.measured_fps for record in group],
            marker=_MARKS[part],
            color=_COLOURS[network],
            label=_name(group),
        )
    axes.axline((10, 10), slope=1, color="0.6", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="predicted frames/s", ylabel="measured frames/s")
    axes.legend(frameon=False, fontsize=8)
    save_figure(figure, [file])
