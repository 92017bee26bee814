"""Which layers go to which accelerator: the records of a mapping file and of what it means.

Example:
    {"edge01_cpu0-3": ["conv1", "conv2..pool5"], "edge01_gpu": ["fc6"]}
"""

from __future__ import annotations

from dataclasses import dataclass

from rankslice.backend.runtime.job import Rank


@dataclass(frozen=True, slots=True)
class MappingEntry:
    """One key of the mapping with its layers: one MPI rank, or several that take turns."""

    key: str
    """As written: ``edge01_cpu0-3.2``, or ``edge01_gpu*3|edge02_cpu0-3`` for ranks in turn."""
    layers: tuple[str, ...]
    """As written: names of layers or of output tensors, and ranges ``first..last``."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping file: ranks are numbered in the order in which its keys name them."""

    name: str
    entries: tuple[MappingEntry, ...]


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
