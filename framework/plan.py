"""All that the front end decided, as one record and one file, ``plan.json``.

The runtime on the boards reads the file, and only that; so everything a rank needs to know
stands in it. The order of every list is fixed, so equal plans are equal bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from rankslice.framework.graph import Tensor
from rankslice.framework.mapping import Placement

__all__ = ["FORMAT", "VERSION", "Channel", "ModelInfo", "Plan", "Segment", "plan_to_json"]

FORMAT = "rankslice-plan"
VERSION = 1


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that was sliced."""

    name: str
    sha256: str
    format: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """A convex piece of a rank's layers: with its inputs there, it runs without waiting."""

    rank: int
    index: int
    """Number within the rank, from 0, in the order in which a frame passes them."""
    file: str
    """Path of the sub-model file inside the build folder."""
    layers: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    level: int
    """Length of the longest path from the source to this segment, itself included, in segments
    and hops between ranks."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One tensor that one rank sends to another, every frame."""

    number: int
    """Also the MPI tag; from 1, since tag 0 is the completion credit's."""
    tensor: str
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run where, and who sends what to whom."""

    model: ModelInfo
    ranks: tuple[Placement, ...]
    tensors: tuple[Tensor, ...]
    """Those that segments take in or give out, by first use: shape and type are always known."""
    segments: tuple[Segment, ...]
    """In a topological order of the segment graph."""
    channels: tuple[Channel, ...]
    source: int
    """Rank where frames enter."""
    sink: int
    """Rank where results come out."""
    path_length: int
    """Longest path from source to sink, in segments and hops."""
    minimal: bool
    """Whether the number of segments is proven to be the smallest possible."""

    @property
    def window(self) -> int:
        """Default number of frames inside the pipeline: the longest path plus one."""
        return self.path_length + 1

    def of_rank(self, rank: int) -> tuple[Segment, ...]:
        """Return the segments of one rank, by index."""
        return tuple(segment for segment in self.segments if segment.rank == rank)


def plan_to_json(plan: Plan) -> str:
    """Return the text of ``plan.json``: ASCII, indented, the same bytes for the same plan."""
    record: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(plan)}
    for rank in record["ranks"]:
        rank["options"] = dict(rank["options"])
    record["window"] = plan.window
    return json.dumps(record, indent=1, ensure_ascii=True) + "\n"
