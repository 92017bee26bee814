"""The optimal planner, asked about a problem: its contiguous plans, and a bound of all of them.

The planner knows chains of layers, the cost model graphs; docs/exploration.md says where they
count differently. So a plan is optimal by the planner's count alone, and a search by the cost model
goes on from there. :meth:`ContiguousPlanner.bound_s` holds by the cost model's count, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration import Device, LayerChain, NoPlanError, optimal_pipeline
from rankslice.exploration.cost.cost_model import SLOTS, Costs
from rankslice.exploration.cost.timing import message_costs
from rankslice.exploration.planner.optimal import Objective
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.front import Assignment
from rankslice.exploration.times.span_times import Slice

Floats = NDArray[np.float64]

_MAX_STEPS = 20_000


@dataclass(frozen=True)
class ContiguousPlan:
    """A plan of the exact planner."""

    assignment: Assignment
    slices: tuple[Slice, ...]
    bottleneck_s: float
    """As the planner counts."""


@dataclass(frozen=True)
class ContiguousPlanner:
    """Asks the exact planner for plans of a problem."""

    problem: Problem

    @cached_property
    def devices(self) -> list[int]:
        """All devices, but for those that share cores with an earlier one."""
        return without_shared_cores(self.problem, range(len(self.problem.devices)))

    @cached_property
    def _teams(self) -> dict[tuple[int, ...], int]:
        """The numbers that stand for devices in turn, each with the same share, by these."""
        first = len(self.problem.devices)
        teams = enumerate(self.problem.teams, first)
        return {team.devices: number for number, team in teams if not team.weights}

    @cached_property
    def most_turns(self) -> int:
        return max(map(len, self._teams), default=1)

    def plan(
        self,
        devices: Sequence[int],
        objective: Objective = "throughput",
        floor_fps: float = 0.0,
        most_bytes: float = math.inf,
    ) -> ContiguousPlan | None:
        """Return the best plan on some of the devices; ``None``: there is none.

        Args:
            most_bytes: memory that it may take of each board, if the board has so much.
        """
        problem = self.problem
        boards = problem.device_boards[list(devices)]
        pairs = np.ix_(boards, boards)
        try:
            pipeline = optimal_pipeline(
                LayerChain(
                    **self._arguments,
                    output_bytes=self._sent_bytes,
                    output_row=np.searchsorted(problem.shares, problem.wire_shares[pairs]),
                    spans_s=self._spans(devices),
                    devices=[self._device(device, most_bytes) for device in devices],
                    bandwidth_bytes_s=problem.bandwidth_bytes_s[pairs],
                    latency_s=problem.latency_s[pairs] if objective == "latency" else 0.0,
                ),
                objective=objective,
                throughput_floor_fps=floor_fps,
                most_turns=self.most_turns,
                most_steps=_MAX_STEPS,
            )
        except NoPlanError:
            return None
        row = np.empty(len(problem.layers), np.int64)
        for part in pipeline.slices:
            row[part.first : part.last + 1] = self._number(part.indices, devices)
        kinds = problem.device_kinds[list(devices)].tolist()
        slices = tuple(Slice(kinds[part.index], part.first, part.last) for part in pipeline.slices)
        return ContiguousPlan(row, slices, pipeline.bottleneck_s)

    def _number(self, indices: Sequence[int], devices: Sequence[int]) -> int:
        """Return the number of a device, or of several that take turns.

        Where the problem has too many devices for all teams, the first device has all frames.
        """
        members = tuple(sorted(devices[index] for index in indices))
        return members[0] if len(members) == 1 else self._teams.get(members, members[0])

    def bound_s(self) -> float:
        """Return what no mapping of contiguous slices falls short of, by the cost model.

        That is a bottleneck in seconds; infinite if there is no such mapping.
        """
        # What crosses cuts depends on who takes turns: where some do, it counts as nothing.
        counts = float(self.most_turns == 1)
        return max(self._bound_s(counts * sent, rates) for sent, rates in self._least_sent())

    def _bound_s(self, sent: Floats, bandwidth: Floats) -> float:
        """Return the bottleneck below which there is none, of messages of so many bytes."""
        try:
            chain = LayerChain(
                self.problem.times_s,
                sent,
                np.zeros(len(self.problem.layers)),
                [Device(device.key, device.kind) for device in self.problem.devices],
                spans_s=self.least_spans_s(),
                bandwidth_bytes_s=bandwidth,
            )
            pipeline = optimal_pipeline(chain, most_turns=self.most_turns, most_steps=_MAX_STEPS)
        except NoPlanError as error:
            return 0.0 if error.limit == "steps" else math.inf
        return pipeline.bound_s or 0.0

    def least_spans_s(self) -> Floats:
        """Return (kinds, layers, layers): what slices take at least of their cores."""
        return self._spans(range(len(self.problem.devices)))

    def _least_sent(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield what crosses cuts at least, in bytes, and how fast: (devices, devices) in bytes/s.

        What the last layer before a cut makes for the first one behind it crosses from the one
        slice's board to the other's. Where each device has a board of its own, all that this layer
        reads comes over its board's cable, from wherever, and all that the other one makes leaves.
        """
        boards = self.problem.device_boards
        rates = self.problem.bandwidth_bytes_s[np.ix_(boards, boards)]
        between = np.where(boards[:, np.newaxis] == boards, np.inf, rates)
        taken, sent, handed = self._bytes_at_cuts()
        yield handed, between
        if len({*boards.tolist()}) == len(boards) > 1:
            apart = np.where(np.isinf(between) & np.eye(len(boards), dtype=bool), 0.0, between)
            fastest = np.maximum.outer(apart.max(axis=1), apart.max(axis=0))
            yield np.maximum(taken, sent), fastest

    def _bytes_at_cuts(self) -> tuple[Floats, Floats, Floats]:
        """Return of each cut behind a layer what the next layer takes, what this one gives, and
        what of this goes to the next layer.
        """
        taken, sent, handed = np.zeros((3, len(self.problem.layers)))
        least = self.problem.tensor_bytes * self.problem.crossing_shares[0]
        for nbytes, made, later in _uses(self.problem, least):
            if math.isfinite(nbytes):
                for reader in later:
                    taken[reader - 1] += nbytes
                sent[made] += nbytes if later else 0.0
                handed[made] += nbytes if made + 1 in later else 0.0
        return taken, sent, handed

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        problem, crossing = self.problem, self._crossing_bytes
        finite = np.where(np.isfinite(crossing), crossing, 0.0)
        arriving = np.concatenate([[0.0], finite[:-1]])
        return {
            "times_s": problem.times_s,
            "memory_bytes": _span_bytes(problem),
            "receive_memory_bytes": SLOTS * arriving,
            "send_memory_bytes": SLOTS * finite,
        }

    @cached_property
    def _sent_bytes(self) -> Floats:
        """(shares, layers): what crosses a cut behind a layer."""
        sizes = self.problem.tensor_bytes * self.problem.crossing_shares
        crossing = [np.append(crossing_bytes(self.problem, nbytes), 0.0) for nbytes in sizes]
        return np.where(np.isfinite(crossing), crossing, 0.0)

    @cached_property
    def _crossing_bytes(self) -> Floats:
        """(layers,): what crosses a cut behind a layer; infinite where none can be."""
        return np.append(crossing_bytes(self.problem), 0.0)

    @cached_property
    def _inside_groups(self) -> NDArray[np.bool_]:
        """(layers,): whether a cut behind a layer would part what belongs together."""
        inside = np.zeros(len(self.problem.layers), bool)
        for group in self.problem.together:
            inside[min(group) : max(group)] = True
        return inside

    def _spans(self, devices: Sequence[int]) -> Floats:
        boards = self.problem.device_boards[list(devices)].tolist()
        return self._spans_by_place[len({*boards}) < len(boards)]

    @cached_property
    def _spans_by_place(self) -> tuple[Floats, Floats]:
        """Of slices that have a board each; and of others, whose tensors do not all leave it."""
        problem, overheads = self.problem, self.problem.overheads
        nbytes = np.where(np.isfinite(problem.tensor_bytes), problem.tensor_bytes, 0.0)
        links = np.inf, np.zeros(1), np.zeros(1, bool)
        costs = message_costs(nbytes, problem.crossing_shares, *links, overheads)
        far_s = costs.core_s.min(axis=0)
        near_s = np.full(len(far_s), min(overheads.token_s, overheads.message_s))
        return self._spans_with(far_s), self._spans_with(near_s)

    def _spans_with(self, messages_s: Floats) -> Floats:
        """Return the spans; ``messages_s``: (tensors,), what each end takes."""
        problem = self.problem
        forbidden = np.isinf(self._crossing_bytes) | self._inside_groups
        messages = _messages_s(problem, messages_s)
        spans: Floats = problem.span_tables + problem.overheads.frame_s + messages
        spans[:, :, np.flatnonzero(forbidden)] = np.inf
        spans[:, np.flatnonzero(forbidden[:-1]) + 1, :] = np.inf
        return spans

    def _device(self, number: int, most_bytes: float) -> Device:
        device = self.problem.devices[number]
        board = self.problem.boards[device.board]
        watts = float(self.problem.active_w[number])
        capacity = math.inf if board.memory_bytes is None else float(board.memory_bytes)
        capacity = min(capacity, most_bytes)
        kinds = self.problem.device_kinds[self.problem.device_boards == device.board]
        # Each device of the board has the whole model.
        models = (
            self._arguments["memory_bytes"][kinds, 0, -1]
            + 2 * self._arguments["send_memory_bytes"].max()
        )
        return Device(
            name=device.key,
            kind=device.kind,
            board=board.name,
            # Planning takes less time where memory cannot matter.
            memory_bytes=math.inf if float(models.sum()) <= capacity else capacity,
            busy_w=watts if math.isfinite(watts) else None,
            idle_w=board.idle_w or 0.0,
        )


class _Use(NamedTuple):
    """Where a tensor comes from, and who needs it later."""

    size: float
    """In bytes, or what it takes in seconds."""
    home: int
    """The layer from whose device it comes."""
    later: tuple[int, ...]
    """The layers behind that one that need it, ascending; the sink's counts, too."""


def _uses(problem: Problem, sizes: Floats) -> Iterator[_Use]:
    homes, of_tensors = problem.home_layers.tolist(), sizes.tolist()
    for tensor, home, size in zip(problem.tensors, homes, of_tensors, strict=True):
        readers = {*tensor.readers, *((problem.sink_layer,) if tensor.is_output else ())}
        yield _Use(size, home, tuple(sorted(r for r in readers if r > home)))


def _messages_s(problem: Problem, messages_s: Floats) -> Floats:
    """Return (layers, layers): time for what a slice takes and gives, by first and last layer.

    Each tensor is taken once, and given once, as if one stage read it.
    """
    layers = len(problem.layers)
    steps = np.zeros((layers + 1, layers + 1))

    def add(seconds: float, first: range, last: range) -> None:
        if first and last:
            steps[first.start, last.start] += seconds
            steps[first.stop, last.start] -= seconds
            steps[first.start, last.stop] -= seconds
            steps[first.stop, last.stop] += seconds

    for seconds, made, later in _uses(problem, messages_s):
        for before, reader in itertools.pairwise((made, *later)):
            add(seconds, range(before + 1, reader + 1), range(reader, layers))
        add(seconds, range(made + 1), range(made, max(later, default=made)))
    return np.cumsum(np.cumsum(steps, axis=0), axis=1)[:-1, :-1]


def _span_bytes(problem: Problem) -> Floats:
    """Return (kinds, layers, layers): memory of a rank with the layers of a span."""
    held = np.concatenate([[0.0], np.cumsum(problem.weight_bytes, dtype=np.float64)])
    table: Floats = held[np.newaxis, 1:] - held[:-1, np.newaxis] - _counted_twice(problem)
    if len(problem.working_bytes):
        work = problem.working_bytes.astype(np.float64)
        for first in range(len(work)):
            table[first, first:] += np.maximum.accumulate(work[first:])
    table = np.maximum(table, 0.0)
    alone = problem.rank_bytes if len(problem.rank_bytes) else np.zeros(len(problem.times_s))
    return np.stack([table + nbytes for nbytes in alone])


def _counted_twice(problem: Problem) -> Floats:
    """Return (layers, layers): the size of weights that a span's layers share."""
    layers = len(problem.layers)
    again = np.zeros((layers, layers))
    for weight in problem.shared_weights:
        for one, other in itertools.pairwise(weight.readers):
            again[one, other] += weight.nbytes
    # Of each span, those whose both readers lie inside.
    return np.cumsum(np.cumsum(again[::-1], axis=0)[::-1], axis=1)


def without_shared_cores(problem: Problem, devices: Iterable[int]) -> list[int]:
    """Return the devices that can all compute at once: of those that share cores the first."""
    taken: set[tuple[int, int]] = set()
    chosen = []
    for number in devices:
        device = problem.devices[number]
        cores = {(device.board, core) for core in device.cores}
        if taken.isdisjoint(cores):
            taken |= cores
            chosen.append(number)
    return chosen


def fastest_slices(problem: Problem) -> tuple[Slice, ...]:
    """Return the slices of the fastest contiguous pipeline; none if no pipeline can run the model.

    Of devices that share cores the first one takes part.
    """
    planner = ContiguousPlanner(problem)
    plan = planner.plan(planner.devices)
    return () if plan is None else plan.slices


def limiting_pairs(problem: Problem) -> list[frozenset[str]]:
    """Return the pairs of boards whose links would limit the fastest pipeline without conversions.

    Args:
        problem: with conversions on all links; the pipeline is the fastest of contiguous slices.
    """
    planner = ContiguousPlanner(problem)
    plan = planner.plan(planner.devices)
    shares, raw = problem.wire_shares, np.ones_like(problem.wire_shares)
    pairs: dict[frozenset[str], None] = {}
    while plan is not None:
        costs = Costs(replace(problem, wire_share=raw), plan.assignment[np.newaxis])
        sent, ports = costs.sent, costs.loads_s[0, -2 * len(raw) :].reshape(-1, 2)
        ends = problem.device_boards[sent.origin], problem.device_boards[sent.target]
        is_busy = ports >= costs.bottleneck_s[0]
        is_limited = is_busy[ends[0], 0] | is_busy[ends[1], 1]
        is_limited &= problem.is_convertible[sent.tensor] & (shares[ends] < raw[ends])
        if not is_limited.any():
            break
        for one, other in zip(*(boards[is_limited].tolist() for boards in ends), strict=True):
            raw[[one, other], [other, one]] = shares[[one, other], [other, one]]
            pairs[frozenset((problem.boards[one].name, problem.boards[other].name))] = None
    return [*pairs]


def crossing_bytes(problem: Problem, sizes: Floats | None = None) -> NDArray[np.float64]:
    """Return (layers - 1,): the bytes that layers after each border need of those before it.

    Model inputs come from the layer at which frames enter; model outputs go to the last layer that
    makes one.

    Args:
        sizes: (tensors,): bytes of their messages; by default those within a board.
    """
    finite, endless = np.zeros((2, len(problem.layers) + 1))
    for nbytes, made, later in _uses(problem, problem.tensor_bytes if sizes is None else sizes):
        if later:
            changes, size = (finite, nbytes) if np.isfinite(nbytes) else (endless, 1)
            changes[made] += size
            changes[later[-1]] -= size
    crossing = np.maximum(np.cumsum(finite), 0.0)  # what is added and taken away may leave a rest
    return np.where(np.cumsum(endless) > 0, np.inf, crossing)[:-2]
