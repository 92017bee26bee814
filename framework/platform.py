"""The boards, their accelerators and the links between them: the record of a platform file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from rankslice.backend.runtime.job import Compression


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU or NPU of a board, or its CPU, as the platform file describes it."""

    engine: str
    """Empty: the one for the model's format."""
    options: tuple[tuple[str, str], ...] = ()
    """Delegate library or execution provider, and options, handed to the engine."""
    environment: tuple[tuple[str, str], ...] = ()
    allow_fallback: bool = False
    """Whether layers that it cannot run may run on the CPU."""
    types: tuple[str, ...] = ()
    """Element types that it takes, by numpy's names; empty: all, as far as is known."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cores of a board that are alike, as the platform file names them."""

    name: str
    cores: tuple[int, ...]
    """Logical core numbers, ascending."""
    kind: str = ""
    """``Cortex-A78``; empty: unknown."""
    max_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """One machine."""

    name: str
    host: str
    """Address that ssh and mpirun use; the name unless given."""
    user: str = ""
    """Account for ssh; empty: ssh's own default."""
    arch: str = ""
    """``aarch64``, ``x86_64``, ...; empty: unknown."""
    python: str = ""
    """Version of its Python, ``3.11``; empty: unknown."""
    cores: tuple[int, ...] | None = None
    """Logical core numbers; ``None``: unknown, checked when the job starts."""
    clusters: tuple[Cluster, ...] = ()
    """Each core is in one of them; none: all cores are alike, as far as is known."""
    memory_mb: float | None = None
    gpus: tuple[Accelerator, ...] = ()
    npus: tuple[Accelerator, ...] = ()
    engine: str = ""
    """Engine of the CPU ranks; empty: the one for the model's format."""
    cpu: Accelerator | None = None
    """How CPU ranks run, if the file says more than the engine."""
    idle_w: float | None = None
    """Power of the board doing nothing, in watts."""
    busy_w: float | None = None
    """Power of the board with all accelerators busy, in watts."""

    def accelerator(self, name: str) -> Accelerator | None:
        """Return the accelerator of a rank by name: ``cpu``, ``gpu``, or ``npu1`` of several."""
        units = self.gpus_and_npus
        return self.cpu if name == "cpu" else units.get(name) or units.get(name.removesuffix("0"))

    @property
    def known_cores(self) -> tuple[int, ...]:
        """Its cores; core 0, which each board has, if the file does not name them."""
        return self.cores or (0,)

    @property
    def cpus(self) -> tuple[tuple[int, ...], ...]:
        """The cores of each cluster, the fastest first; without clusters all of them."""
        by_speed = sorted(self.clusters, key=lambda cluster: -(cluster.max_mhz or 0))
        return tuple(cluster.cores for cluster in by_speed) or (self.known_cores,)

    def clusters_of(self, cores: Iterable[int]) -> tuple[Cluster, ...]:
        """The clusters that have some of these cores."""
        wanted = frozenset(cores)
        return tuple(c for c in self.clusters if not wanted.isdisjoint(c.cores))

    @property
    def gpus_and_npus(self) -> dict[str, Accelerator]:
        """Its GPUs and NPUs by their names in mapping keys: ``gpu``, ``gpu1``, ``npu``."""
        kinds = (("gpu", self.gpus), ("npu", self.npus))
        return {f"{kind}{n or ''}": unit for kind, units in kinds for n, unit in enumerate(units)}


Wire: TypeAlias = Literal["none", "float16", "bfloat16", "int8"]
WIRES: tuple[Wire, ...] = get_args(Wire)
"""As what a link carries float32 tensors, in the order of their bits: as they are, or converted."""

WIRE_SHARE: Mapping[str, float] = {"none": 1.0, "float16": 0.5, "bfloat16": 0.5, "int8": 0.25}
"""How much of a float32 tensor's bytes crosses a link."""


@dataclass(frozen=True, slots=True)
class Link:
    """What lies between two boards, in each direction."""

    bandwidth_mbps: float
    """Megabits per second."""
    latency_ms: float
    wire: Wire = "none"
    compress: Compression = "none"


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform file."""

    name: str
    boards: tuple[Board, ...]
    default_link: Link | None = None
    links: tuple[tuple[str, str, Link], ...] = ()
    """Links that differ from the default, by the names of the two boards."""

    @property
    def wires(self) -> frozenset[Wire]:
        """As what its links carry float32 tensors, where it is not float32."""
        links = (*(link for *_, link in self.links), self.default_link)
        return frozenset(link.wire for link in links if link and link.wire != "none")

    def with_wire(self, wire: Wire, pairs: Iterable[frozenset[str]] | None = None) -> Platform:
        """Return the platform whose links carry float32 tensors as a type.

        Args:
            pairs: names of two boards; by default all links.
        """
        if pairs is None:
            links = tuple((one, other, replace(link, wire=wire)) for one, other, link in self.links)
            default = self.default_link and replace(self.default_link, wire=wire)
            return replace(self, default_link=default, links=links)
        kept = [entry for entry in self.links if frozenset(entry[:2]) not in {*pairs}]
        for one, other in sorted(map(sorted, pairs)):
            if (link := self.link(one, other)[0]) is not None:
                kept.append((one, other, replace(link, wire=wire)))
        return replace(self, links=tuple(kept))

    def links_section(self) -> dict[str, Any]:
        """Return the section ``links`` of a platform file."""
        pairs = [{"between": [one, other], **asdict(link)} for one, other, link in self.links]
        default = {"default": asdict(self.default_link)} if self.default_link else {}
        return {**default, "pairs": pairs}

    def compresses(self, board: str) -> bool:
        """Return whether messages between a board and another one are compressed."""
        links = (self.link(board, other.name)[0] for other in self.boards if other.name != board)
        return any(link is not None and link.compress != "none" for link in links)

    def link(self, board: str, other: str) -> tuple[Link | None, str]:
        """Return the link between two boards, if it is described, and where in the file."""
        for number, (one, another, link) in enumerate(self.links):
            if {one, another} == {board, other}:
                return link, f"links.pairs[{number}]"
        return self.default_link, "links.default"
