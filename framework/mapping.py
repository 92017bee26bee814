"""Which layers go to which accelerator: the records of a mapping file and of what it means.

Example:
    {"edge01_cpu0-3": ["conv1", "conv2..pool5"], "edge01_gpu": ["fc6"]}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rankslice.backend.runtime.job import Rank

WAYS = ("rows", "columns", "outputs", "inputs", "heads")
"""How layers can be split: by rows, columns or channels of their results, by the channels over
which their last one sums, or by attention heads."""

HALOS = ("recompute", "exchange")
"""What a part does for the rows that it needs of its neighbours: it computes them, too, or receives
them."""


@dataclass(frozen=True, slots=True)
class LayerPart:
    """A part of layers; the other parts are in other keys."""

    layers: tuple[str, ...]
    """As in :attr:`MappingEntry.layers`."""
    by: str
    """One of :data:`WAYS`."""
    share: float = 1
    """Of the whole, in proportion to the shares of the other parts; more than 0."""
    halo: str = "recompute"
    """One of :data:`HALOS`."""

    def in_json(self) -> dict[str, object]:
        """Return it as in a mapping file."""
        halo = {"halo": self.halo} if self.halo != HALOS[0] else {}
        return {"layers": [*self.layers], "by": self.by, "share": self.share, **halo}


@dataclass(frozen=True, slots=True)
class LayerSplit:
    """A layer that is split over several keys by sizes, as a second file of AutoDiCE says it."""

    where: str
    """Its place in the file, for messages."""
    layer: str
    by: str
    """One of :data:`WAYS`."""
    sizes: tuple[int, ...]
    """Rows, columns or channels of each part; the last one has what is left, which is not more."""
    keys: tuple[str, ...]
    """By part: the mapping's key."""


@dataclass(frozen=True, slots=True)
class MappingEntry:
    """One key of the mapping with its layers: one MPI rank, or several that take turns."""

    key: str
    """As written: ``edge01_cpu0-3.2``, or ``edge01_gpu*3|edge02_cpu0-3`` for ranks in turn."""
    layers: tuple[str | LayerPart, ...]
    """As written: names of layers or of output tensors, and ranges ``first..last``; and parts of
    such layers."""

    def in_json(self) -> Iterator[str | dict[str, object]]:
        """Yield its layers as in a mapping file."""
        for item in self.layers:
            yield item if isinstance(item, str) else item.in_json()


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping file: ranks are numbered in the order in which its keys name them."""

    name: str
    entries: tuple[MappingEntry, ...]
    splits: tuple[LayerSplit, ...] = ()
    """Layers that are split, wherever the entries have them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Layers that are split together."""

    where: str
    """Its first part in the mapping file, for messages."""
    layers: tuple[str, ...]
    """Names, in the graph's order."""
    by: str
    halo: str
    parts: tuple[tuple[int, float], ...]
    """The number of the mapping's entry, and the share, of each."""
    has_sizes: bool = False
    """Whether the shares are sizes; the last part has what is left."""


@dataclass(frozen=True)
class Assignment:
    """The layers of a mapping's entries."""

    layers: tuple[tuple[str, ...], ...]
    """By entry: names of layers that it has as a whole, in the graph's order."""
    blocks: tuple[Block, ...] = ()

    @cached_property
    def entry_of(self) -> dict[str, int]:
        """The entry of each layer: the first, of a constant layer that is in several."""
        entries: dict[str, int] = {}
        for entry, layers in enumerate(self.layers):
            for layer in layers:
                entries.setdefault(layer, entry)
        return entries


@dataclass(frozen=True, slots=True)
class Placements:
    """Where all ranks of a mapping run."""

    ranks: tuple[Rank, ...]
    """By rank, without their work."""
    warnings: tuple[str, ...] = ()
    entries: tuple[int, ...] = ()
    """By rank: the number of the mapping's entry whose layers it has."""

    def ranks_of(self, entry: int) -> tuple[int, ...]:
        return tuple(rank for rank, number in enumerate(self.entries) if number == entry)
