"""What an exploration found: mappings with their figures, as records, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankslice.framework.specs.keys import parse_key

__all__ = [
    "FORMAT",
    "VERSION",
    "Candidate",
    "Channel",
    "Exploration",
    "Failure",
    "Figures",
    "RankLoad",
    "candidates_csv",
    "exploration_to_json",
]

FORMAT = "rankslice-front"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Figures:
    """How good a mapping is."""

    source: str
    """``predicted``, ``simulated`` or ``measured``."""
    throughput_fps: float
    latency_s: float
    """From a frame's entry to its result, with nothing waiting before it."""
    memory_bytes: int | None
    """Of the board that needs most."""
    energy_j: float | None
    """Per frame, of the board that needs most; ``None``: not known."""
    energy_source: str | None
    """``measured``: by sensors; ``modelled``: from power figures. See docs/exploration.md."""


@dataclass(frozen=True, slots=True)
class RankLoad:
    """What one rank does."""

    key: str
    board: str
    layers: tuple[str, ...]
    """As in the mapping file: names and ranges."""
    layer_count: int
    compute_s: float
    """Computing, predicted, per frame."""
    busy_s: float
    """With copying messages, and what the runtime takes of the same cores."""
    measured_s: float | None = None
    """Computing, median of a real run."""
    gpu_bytes: int | None = None
    """Memory of the GPU, predicted; ``None``: not measured, or there is none."""

    @property
    def accelerator(self) -> str:
        """``cpu``, ``gpu`` or ``npu``."""
        return parse_key(self.key, self.key).kind


@dataclass(frozen=True, slots=True)
class Channel:
    """What one board or rank sends to another, per frame."""

    source: str
    destination: str
    nbytes: int
    seconds: float
    """Predicted, per frame."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One mapping, to choose or not."""

    number: int
    """From 1, the fastest first."""
    ranks: tuple[RankLoad, ...]
    """Rank i is the i-th."""
    channels: tuple[Channel, ...]
    figures: tuple[Figures, ...]
    """What the cost model predicts; then, if asked for, what was simulated or measured."""
    bottleneck: str
    """What limits it, in words."""
    on_front: bool
    """Whether no other mapping beats it in every objective."""

    @property
    def file(self) -> str:
        """Name of its mapping file."""
        return f"mapping-{self.number:02}.json"

    @property
    def best_known(self) -> Figures:
        """The figures that come closest to reality."""
        return self.figures[-1]

    @property
    def boards(self) -> tuple[str, ...]:
        """Boards that it uses, in the order of its ranks."""
        return tuple(dict.fromkeys(load.board for load in self.ranks))

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Kinds of accelerators that it uses: ``cpu``, ``gpu``, ``npu``, in this order."""
        used = {load.accelerator for load in self.ranks}
        return tuple(kind for kind in ("cpu", "gpu", "npu") if kind in used)

    @property
    def mapping(self) -> dict[str, list[str]]:
        """The content of its mapping file."""
        return {load.key: list(load.layers) for load in self.ranks}


@dataclass(frozen=True, slots=True)
class Failure:
    """A mapping that was tried and did not run."""

    mapping: dict[str, list[str]]
    """As in a mapping file."""
    reason: str


@dataclass(frozen=True, slots=True)
class Exploration:
    """What an exploration found, and how."""

    model: str
    platform: str
    profile: str
    method: str
    """In words: ``NSGA-II, 400 generations of 100, seed 0``."""
    objectives: tuple[str, ...]
    left_out: tuple[str, ...]
    """Objectives that were asked for and cannot be had, each with its reason."""
    evaluations: int
    """Mappings that the cost model evaluated."""
    candidates: tuple[Candidate, ...]
    """By number."""
    answer: tuple[str, ...]
    """What to take from it, in words."""
    target_fps: float | None = None
    tried_by: str | None = None
    """``simulator`` or ``run``: what evaluated mappings after the cost model, if anything did."""
    tried: int = 0
    """Mappings that it evaluated."""
    failures: tuple[Failure, ...] = ()
    """Those of them that did not run."""


def exploration_to_json(exploration: Exploration) -> dict[str, Any]:
    """Return what stands in ``front.json``; what is not known is ``null``."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": exploration.model,
        "platform": exploration.platform,
        "profile": exploration.profile,
        "method": exploration.method,
        "objectives": list(exploration.objectives),
        "left_out": list(exploration.left_out),
        "evaluations": exploration.evaluations,
        "tried_by": exploration.tried_by,
        "tried": exploration.tried,
        "failures": [
            {"mapping": failure.mapping, "reason": failure.reason}
            for failure in exploration.failures
        ],
        "target_fps": exploration.target_fps,
        "answer": list(exploration.answer),
        "mappings": [_candidate(candidate) for candidate in exploration.candidates],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "number": candidate.number,
        "file": candidate.file,
        "on_front": candidate.on_front,
        "boards": list(candidate.boards),
        "bottleneck": candidate.bottleneck,
        "figures": [_figures(figures) for figures in candidate.figures],
        "ranks": [_load(load) for load in candidate.ranks],
        "channels": [
            {
                "source": channel.source,
                "destination": channel.destination,
                "bytes": channel.nbytes,
                "ms": 1e3 * channel.seconds,
            }
            for channel in candidate.channels
        ],
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "source": figures.source,
        "throughput_fps": figures.throughput_fps,
        "latency_ms": 1e3 * figures.latency_s,
        "worst_memory_bytes": figures.memory_bytes,
        "worst_energy_j": figures.energy_j,
        "energy_source": figures.energy_source,
    }


def _load(load: RankLoad) -> dict[str, Any]:
    return {
        "key": load.key,
        "board": load.board,
        "layers": list(load.layers),
        "layer_count": load.layer_count,
        "compute_ms": 1e3 * load.compute_s,
        "busy_ms": 1e3 * load.busy_s,
        "measured_ms": None if load.measured_s is None else 1e3 * load.measured_s,
        "gpu_bytes": load.gpu_bytes,
    }


_COLUMNS = (
    *("mapping", "file", "on_front", "source", "throughput_fps", "latency_ms", "worst_memory_mb"),
    *("worst_energy_j", "energy_source", "boards", "ranks", "accelerators", "bottleneck"),
)


def candidates_csv(candidates: Sequence[Candidate]) -> str:
    """Return a table with a line for each mapping and source of its figures."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for candidate in candidates:
        for figures in candidate.figures:
            writer.writerow(_row(candidate, figures))
    return text.getvalue()


def _row(candidate: Candidate, figures: Figures) -> list[object]:
    memory, energy = figures.memory_bytes, figures.energy_j
    return [
        candidate.number,
        candidate.file,
        "yes" if candidate.on_front else "no",
        figures.source,
        f"{figures.throughput_fps:.4g}",
        f"{1e3 * figures.latency_s:.4g}",
        "" if memory is None else f"{memory / 1e6:.4g}",
        "" if energy is None else f"{energy:.4g}",
        figures.energy_source or "",
        len(candidate.boards),
        len(candidate.ranks),
        "+".join(candidate.accelerators),
        candidate.bottleneck,
    ]
