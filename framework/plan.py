"""All that the front end decided: the job, and what boards never need.

It is one file, ``plan.json``, for tools. The order of every list is fixed, so equal plans are equal
bytes. What runs is the job of ``driver.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rankslice.backend.runtime.job import Channel, Job, PlacedSegment, Rank
from rankslice.backend.runtime.job.check import SUBMODEL, contradictions
from rankslice.backend.runtime.job.strict import plain, vars_of
from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.framework.reading.records import document_schema, read_document

FORMAT = "rankslice-plan"
VERSION = 7


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that was sliced."""

    name: str
    sha256: str
    format: str


@dataclass(frozen=True, slots=True)
class SegmentLayers:
    """Which layers a segment has."""

    file: str
    """Of its sub-model."""
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MadeLayer:
    """A layer that the model does not have: layers are split, or what crosses is converted."""

    name: str
    origin: str
    """Name of the model's layer of which it is a part, or whose result it cuts or joins."""
    kind: str
    """``part``, ``crop``, ``join``, ``sum``, ``convert``, or ``renamed`` of a copy of a layer."""
    by: str
    """Of a part: how the layer is split."""
    box: str
    """Of a part and a crop: what it makes of a tensor, as an index of numpy: ``[:,0:48]``."""
    share: float
    """Of a part: how much of the whole layer's arithmetic it has; 0 for other kinds."""
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class WireConversion:
    """A tensor of the model that crosses between boards as another type."""

    tensor: str
    sent: str
    """The tensor of the job that crosses instead."""
    dtype: str
    max_error: float | None = None
    """Largest difference between the tensor and what its readers get, in the representative
    frames; ``None``: not measured."""
    value_range: float | None = None
    """Largest value - smallest value in these frames."""


@dataclass(frozen=True, slots=True)
class PlannedSegment(PlacedSegment):
    """A segment of the job, with its layers."""

    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What to run where, and who sends what to whom."""

    model: ModelInfo
    job: Job
    layers: tuple[SegmentLayers, ...]
    """Of each segment, on both routes."""
    minimal: bool
    """Whether the number of segments is proven to be the smallest possible."""
    made: tuple[MadeLayer, ...] = ()
    """The layers that the model does not have, in the graph's order."""
    surge_minimal: bool | None = None
    """The same of the second route, if there is one."""
    conversions: tuple[WireConversion, ...] = ()
    """Of tensors between boards; the unsliced model with the same ones lies in the build folder."""

    @property
    def ranks(self) -> tuple[Rank, ...]:
        return self.job.ranks

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self.job.channels

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.job.inputs)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.job.outputs)

    @property
    def splits_layers(self) -> bool:
        return any(layer.kind == "part" for layer in self.made)

    @cached_property
    def made_by_name(self) -> dict[str, MadeLayer]:
        return {layer.name: layer for layer in self.made}

    @cached_property
    def segments(self) -> tuple[PlannedSegment, ...]:
        """All segments, in a topological order of the segment graph."""
        layers = {segment.file: segment.layers for segment in self.layers}
        return tuple(
            PlannedSegment(**vars_of(segment), layers=layers.get(segment.file, ()))
            for segment in self.job.segments
        )

    @cached_property
    def routes(self) -> tuple[Plan, ...]:
        """The plan of each way of frames through the ranks, the usual one first."""
        if self.surge is None:
            return (self,)
        return replace(self, job=self.job.routes[0], surge_minimal=None), self.surge

    @cached_property
    def surge(self) -> Plan | None:
        """The way that frames take while more come than the ranks can handle on the usual one."""
        if self.job.surge is None:
            return None
        is_minimal = bool(self.surge_minimal)
        return replace(self, job=self.job.surge, minimal=is_minimal, surge_minimal=None)

    def models_layers(self, names: Iterable[str]) -> dict[str, float]:
        """Return the model's layers that some layers are or of which they are parts.

        By name: how much of it they have together; what cuts, joins or adds tensors has nothing.
        """
        shares: dict[str, float] = {}
        for name in dict.fromkeys(names):
            layer = self.made_by_name.get(name)
            if layer is None or layer.kind == "part":
                origin, share = (layer.origin, layer.share) if layer else (name, 1)
                shares[origin] = shares.get(origin, 0.0) + share
        return shares

    def of_rank(self, rank: int) -> tuple[PlannedSegment, ...]:
        return tuple(segment for segment in self.segments if segment.rank == rank)

    def with_ranks(self, ranks: Sequence[Rank]) -> Plan:
        return replace(self, job=replace(self.job, ranks=tuple(ranks)))


def plan_to_json(plan: Plan) -> str:
    """Return the text of ``plan.json``: ASCII, indented, the same bytes for the same plan."""
    record = {"format": FORMAT, "version": VERSION, **plain(Plan, plan)}
    return json.dumps(record, indent=1, ensure_ascii=True) + "\n"


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``plan.json``, for other tools that read it."""
    schema = document_schema(Plan, "plan", VERSION)
    schema["$defs"]["Segment"]["properties"]["file"]["pattern"] = f"^{SUBMODEL.pattern}$"
    return schema


def plan_from_json(text: str, where: str = "plan.json") -> Plan:
    """Return the plan of a text that :func:`plan_to_json` made, after checking it."""
    plan = read_document(Plan, text, where, "plan", VERSION, "rankslice build", "build it again")
    raise_mistakes(
        Mistake(f"{where}: job.{path}", found, expected)
        for path, found, expected in contradictions(plan.job)
    )
    return plan
