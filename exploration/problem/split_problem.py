"""Mappings that split layers, as problems of their own: parts are layers like any others."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import Problem, explored_layers
from rankslice.exploration.problem.runtime_costs import BOUNDS, FrameBytes
from rankslice.exploration.times.segment_times import parts_s
from rankslice.exploration.times.span_times import summed_spans
from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Graph, Layer, PartOf
from rankslice.framework.mapping import Mapping
from rankslice.framework.platform import Platform
from rankslice.framework.specs.assign import assign
from rankslice.frontend.formats import Model, format_of
from rankslice.frontend.partition.partition import Partition, partition

if TYPE_CHECKING:
    from rankslice.frontend.rewriting.made_layers import Rewritten


@dataclass(frozen=True, slots=True)
class SplitMapping:
    """A mapping that splits layers, and the problem whose layers are the parts."""

    mapping: Mapping
    problem: Problem
    """Its layers stand segment by segment."""
    assignment: NDArray[np.int64]
    """(layers,) indices of devices."""
    blocks: tuple[tuple[int, ...], ...]
    """Layers of each segment, in a topological order."""
    cut: Partition
    """The segments; their ranks are the numbers of the mapping's entries."""


@dataclass(frozen=True)
class Splitter:
    """Makes the problems of mappings that split the layers of a model."""

    problem: Problem
    """Of the model as it is."""
    model: Model
    platform: Platform
    frame_bytes: FrameBytes = BOUNDS

    def __call__(self, mapping: Mapping) -> SplitMapping:
        """Return the problem of a mapping; its keys are those of single devices.

        A part takes its share of the time of the whole layer, and holds its part of the weights.
        What cuts, joins and adds tensors is counted as nothing.

        Raises:
            RankSliceError: some of the layers cannot be split as the mapping says, or it is not one
                of the model.
        """
        split = self._rewritten(mapping)
        cut = partition(split.graph, split.assignment.entry_of, group_of=split.group_of)
        ordered = _by_segment(cut)
        layers = explored_layers(ordered)
        position = {layer.name: number for number, layer in enumerate(layers)}
        blocks = tuple(
            tuple(position[layer.name] for layer in segment.layers if layer.name in position)
            for segment in cut.segments
        )
        number_of = {device.key: number for number, device in enumerate(self.problem.devices)}
        assignment = np.zeros(len(layers), np.int64)
        for segment, block in zip(cut.segments, blocks, strict=True):
            assignment[[*block]] = number_of[mapping.entries[segment.rank].key]
        times_s, spans_s = self._times(layers, blocks, assignment)
        made = make_problem(
            ordered,
            self.platform,
            times_s,
            accelerators=(self.problem.kinds, self.problem.devices),
            spans_s=spans_s,
            frame_bytes=self.frame_bytes,
        )
        own = {name: getattr(made, name) for name in _OF_LAYERS}
        problem = replace(self.problem, teams=(), **own)
        return SplitMapping(mapping, problem, assignment, blocks, cut)

    def _rewritten(self, mapping: Mapping) -> Rewritten:
        """Return the model with parts; no layer is left whole that is to be split."""
        from rankslice.frontend.rewriting.split import split_layers  # takes its time

        kind, graph = format_of(self.model.graph), self.model.graph
        forms = kind.forms(self.model)
        split = split_layers(graph, assign(mapping, graph), forms, kind.channels_last)
        if split.warnings:
            raise RankSliceError(split.warnings[0])
        return split

    def parts(self, mapping: Mapping) -> list[dict[int, float]]:
        """Return how much of which layer each entry of a mapping has: by index in the problem.

        Raises:
            RankSliceError: some of the layers cannot be split.
        """
        split = self._rewritten(mapping)
        own: list[list[Layer]] = [[] for _ in mapping.entries]
        for layer in split.graph.layers:
            if layer.name in split.assignment.entry_of:
                own[split.assignment.entry_of[layer.name]].append(layer)
        return [*map(self._shares, own)]

    def _shares(self, layers: Iterable[Layer]) -> dict[int, float]:
        """Return how much some layers have of each of the model's layers."""
        shares: dict[int, float] = defaultdict(float)
        for layer in layers:
            number = self._index.get(layer.origin or layer.name)
            if number is not None and isinstance(layer.making, PartOf | None):
                shares[number] += layer.making.share if layer.making else 1.0
        return shares

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.problem.layers)}

    def _times(
        self,
        layers: Sequence[Layer],
        blocks: Sequence[Sequence[int]],
        assignment: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return times of layers and of spans, as problems have them.

        A segment takes what its spans of whole layers do, others the sum of their layers. To the
        cost model, segments of a device that follow each other are one span.
        """
        problem = self.problem
        times_s = np.zeros((len(problem.kinds), len(layers)))
        for number, layer in enumerate(layers):
            for origin, share in self._shares([layer]).items():
                times_s[:, number] = share * problem.times_s[:, origin]
        spans_s = summed_spans(times_s)
        for device, run in itertools.groupby(blocks, key=lambda block: int(assignment[block[0]])):
            kind = problem.devices[device].kind
            first, so_far_s = -1, 0.0
            for block in run:
                whole = self._shares(layers[number] for number in block)
                seconds = parts_s(problem.times_s[kind], problem.spans_s[kind], whole)
                spans_s[kind, block[0], block[-1]] = seconds
                so_far_s += seconds + (problem.overheads.slice_s if first >= 0 else 0.0)
                first = block[0] if first < 0 else first
                spans_s[kind, first, block[-1]] = so_far_s
        return times_s, spans_s


_OF_LAYERS = (
    *("graph", "layers", "times_s", "spans_s", "tensors", "together"),
    *("weight_bytes", "shared_weights", "working_bytes"),
)
"""What a problem has by layer."""


def _by_segment(cut: Partition) -> Graph:
    """Return a graph whose layers stand segment by segment, copies before their first readers."""
    layers = {layer.name: layer for segment in cut.segments for layer in segment.layers}
    return replace(cut.graph, layers=tuple(layers.values()))
