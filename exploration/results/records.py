"""What an exploration found, as records: candidate mappings with their figures."""

from __future__ import annotations

from dataclasses import dataclass

from rankslice.backend.runtime.job import ALL, Turns
from rankslice.framework.specs.keys import parse_key


@dataclass(frozen=True, slots=True)
class Figures:
    """How good a mapping is."""

    basis: str
    """``predicted``, ``simulated`` or ``measured``."""
    throughput_fps: float
    latency_s: float
    """From a frame's entry to its result, with nothing waiting before it."""
    memory_bytes: int | None
    """Of the board that needs most."""
    energy_j: float | None
    """Per frame, of the board that needs most; ``None``: not known."""
    energy_basis: str | None
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
    turns: Turns = ALL
    """The frames that it handles; times are for each of them."""
    in_turn_key: str = ""
    """Key of the mapping's entry, if other ranks take turns with it."""

    @property
    def entry(self) -> str:
        return self.in_turn_key or self.key

    @property
    def load_s(self) -> float:
        """For how long it is busy for each frame of the stream, on average."""
        return self.busy_s * float(self.turns.share)

    @property
    def accelerator(self) -> str:
        """``cpu``, ``gpu`` or ``npu``."""
        return parse_key(self.key, self.key).kind


@dataclass(frozen=True, slots=True)
class RankTraffic:
    """What one rank sends to another for each frame, all tensors together."""

    sender: str
    receiver: str
    nbytes: int
    seconds: float
    """Predicted, per frame."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mapping that a search proposes."""

    number: int
    """From 1, the fastest first."""
    ranks: tuple[RankLoad, ...]
    """Rank i is the i-th."""
    traffic: tuple[RankTraffic, ...]
    figures: tuple[Figures, ...]
    """What the cost model predicts; then, if asked for, what was simulated or measured."""
    bottleneck: str
    """What limits it, in words."""
    on_front: bool
    """Whether no other mapping beats it in every objective."""

    @property
    def file(self) -> str:
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
        return {load.entry: list(load.layers) for load in self.ranks}


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
    """Objectives that were asked for and are not available, each with its reason."""
    evaluations: int
    """Mappings that the cost model evaluated."""
    candidates: tuple[Candidate, ...]
    """By number."""
    answer: tuple[str, ...]
    """What to take from it, in words."""
    tried_by: str | None = None
    """``simulator`` or ``run``: what evaluated mappings after the cost model, if anything did."""
    tried: int = 0
    """Mappings that it evaluated."""
    failures: tuple[Failure, ...] = ()
    """Those of them that did not run."""
    target_fps: float | None = None
    surge_fps: float | None = None
    """Frames per second during a surge."""
    routes: tuple[int, ...] = ()
    """Numbers of the mappings for the usual load and for the surge; none: there is no such pair."""
