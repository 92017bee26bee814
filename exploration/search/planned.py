"""Exact plans of a problem: the best contiguous slices, for sets of boards and within limits.

The planner knows chains: what crosses a cut is one message to the next stage, and each message has
its link for itself. Where every board has one stage and no tensor skips one, that is what
:mod:`rankslice.exploration.cost.cost_model` counts, too, so both give the same rate. They differ

* where a tensor skips a stage: the planner lets it pass through, which takes more of the links of
  the stages between, and less of its maker's link if stages on several boards read it;
* where stages of one board do not follow each other, or a board gets model inputs or gives results
  besides: the planner does not add up what they send and receive over the board's cable;
* where stages follow each other on one board: the planner counts a message between them by itself,
  the cost model as time of the cores at both ends;
* where some devices share a board: the planner does not count what messages over the network take
  of the cores.

Then the planner's plans are the best ones by its own count alone, and a search by the cost model
goes on from there. :meth:`ContiguousPlanner.bound_s` is certain nevertheless.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration import Device, LayerChain, NoPlanError, optimal_pipeline
from rankslice.exploration.cost.evaluation import SLOTS, evaluate
from rankslice.exploration.cost.messages import producer_of
from rankslice.exploration.planner.optimal import Objective
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.search.seeds import crossing_bytes

__all__ = ["ContiguousPlanner", "Planned", "apart", "planned_seeds", "planned_sweep"]

Floats = NDArray[np.float64]

_MAX_SUBSETS = 32
"""Sets of boards that are planned for, one by one."""

_LIMITS = 8
"""Steps between the least and the greatest value of an objective that is held down."""

_MAX_STEPS = 20_000


@dataclass(frozen=True)
class Planned:
    """A plan of the exact planner."""

    assignment: NDArray[np.int64]
    """(layers,): device of each layer."""
    bottleneck_s: float
    """As the planner counts."""


@dataclass(frozen=True)
class ContiguousPlanner:
    """Asks the exact planner for plans of a problem."""

    problem: Problem

    def plan(
        self,
        devices: Sequence[int],
        objective: Objective = "throughput",
        floor_fps: float = 0.0,
        most_bytes: float = math.inf,
    ) -> Planned | None:
        """Return the best plan on some of the devices; ``None``: there is none.

        Args:
            devices: those that may be used.
            objective: what is best.
            floor_fps: frames per second that it has to reach.
            most_bytes: memory that it may take of each board, if the board has so much.
        """
        try:
            found = optimal_pipeline(
                LayerChain(
                    **self._arguments,
                    **self._between(devices),
                    spans_s=self._spans(devices),
                    devices=[self._device(device, most_bytes) for device in devices],
                    latency_s=self._latencies(devices) if objective == "latency" else 0.0,
                ),
                objective=objective,
                throughput_floor_fps=floor_fps,
                most_steps=_MAX_STEPS,
            )
        except NoPlanError:
            return None
        row = np.empty(len(self.problem.layers), np.int64)
        for piece in found.slices:
            row[piece.first : piece.last + 1] = devices[piece.index]
        return Planned(row, found.bottleneck_s)

    def bound_s(self) -> float:
        """Return what no mapping of contiguous slices falls short of, by the cost model.

        That is a bottleneck in seconds; infinite if there is no such mapping.
        """
        return max(self._bound_s(sent, rates) for sent, rates in self._least_sent())

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
            found = optimal_pipeline(chain, most_steps=_MAX_STEPS)
        except NoPlanError as error:
            return 0.0 if error.limit == "steps" else math.inf
        return found.bound_s or 0.0

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
        taken, given, handed = self._bytes_at_cuts()
        yield handed, between
        if len({*boards.tolist()}) == len(boards) > 1:
            apart = np.where(np.isinf(between) & np.eye(len(boards), dtype=bool), 0.0, between)
            fastest = np.maximum.outer(apart.max(axis=1), apart.max(axis=0))
            yield np.maximum(taken, given), fastest

    def _bytes_at_cuts(self) -> tuple[Floats, Floats, Floats]:
        """Return of each cut behind a layer what the next layer takes, what this one gives, and
        what of this goes to the next layer.
        """
        problem, layers = self.problem, len(self.problem.layers)
        taken, given, handed = np.zeros((3, layers))
        for tensor in problem.tensors:
            if not math.isfinite(tensor.nbytes):
                continue
            made = producer_of(problem, tensor)
            readers = {*tensor.readers, *((problem.sink_layer,) if tensor.is_output else ())}
            later = {reader for reader in readers if reader > made}
            for reader in later:
                taken[reader - 1] += tensor.nbytes
            given[made] += tensor.nbytes if later else 0.0
            handed[made] += tensor.nbytes if made + 1 in later else 0.0
        return taken, given, handed

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        """What does not depend on the devices."""
        problem, crossing = self.problem, self._crossing_bytes
        finite = np.where(np.isfinite(crossing), crossing, 0.0)
        arriving = np.concatenate([[0.0], finite[:-1]])
        return {
            "times_s": problem.times_s,
            "output_bytes": finite,
            "memory_bytes": _span_bytes(problem),
            "receive_memory_bytes": SLOTS * arriving,
            "send_memory_bytes": SLOTS * finite,
        }

    @cached_property
    def _crossing_bytes(self) -> Floats:
        """(layers,): what crosses a cut behind a layer; infinite where none can be."""
        return np.append(crossing_bytes(self.problem), 0.0)

    def _needs_at_most(self, board: int) -> float:
        """Return what a board needs if each of its devices has the whole model."""
        tensors = 2 * float(self._arguments["send_memory_bytes"].max())
        kinds = self.problem.device_kinds[self.problem.device_boards == board]
        whole: Floats = self._arguments["memory_bytes"][kinds, 0, -1]
        return float(whole.sum()) + len(kinds) * tensors

    @cached_property
    def _inside_groups(self) -> NDArray[np.bool_]:
        """(layers,): whether a cut behind a layer would part what belongs together."""
        inside = np.zeros(len(self.problem.layers), bool)
        for group in self.problem.together:
            inside[min(group) : max(group)] = True
        return inside

    def _spans(self, devices: Sequence[int]) -> Floats:
        """Return (kinds, layers, layers): times of slices, with what the runtime takes."""
        boards = self.problem.device_boards[list(devices)].tolist()
        return self._spans_near if len({*boards}) < len(boards) else self._spans_apart

    @cached_property
    def _spans_near(self) -> Floats:
        """Times of slices whose messages do not all cross the network."""
        return self._spans_with(0.0)

    @cached_property
    def _spans_apart(self) -> Floats:
        """Times of slices that have a board each."""
        return self._spans_with(self.problem.overheads.network_s_per_byte)

    def _spans_with(self, per_byte_s: float) -> Floats:
        problem = self.problem
        forbidden = np.isinf(self._crossing_bytes) | self._inside_groups
        messages = _messages_s(problem, problem.overheads.message_s, per_byte_s)
        spans: Floats = problem.span_tables + problem.overheads.frame_s + messages
        spans[:, :, np.flatnonzero(forbidden)] = np.inf
        spans[:, np.flatnonzero(forbidden[:-1]) + 1, :] = np.inf
        return spans

    def _between(self, devices: Sequence[int]) -> dict[str, Any]:
        boards = self.problem.device_boards[list(devices)]
        bandwidth = self.problem.bandwidth_bytes_s[np.ix_(boards, boards)]
        return {"bandwidth_bytes_s": bandwidth}

    def _latencies(self, devices: Sequence[int]) -> Floats:
        boards = self.problem.device_boards[list(devices)]
        latencies: Floats = self.problem.latency_s[np.ix_(boards, boards)]
        return latencies

    def _device(self, number: int, most_bytes: float) -> Device:
        device = self.problem.devices[number]
        board = self.problem.boards[device.board]
        watts = float(self.problem.active_w[number])
        capacity = math.inf if board.memory_bytes is None else float(board.memory_bytes)
        capacity = min(capacity, most_bytes)
        return Device(
            name=device.key,
            kind=device.kind,
            board=board.name,
            # Planning takes less time where memory cannot matter.
            memory_bytes=math.inf if self._needs_at_most(device.board) <= capacity else capacity,
            busy_w=watts if math.isfinite(watts) else None,
            idle_w=board.idle_w or 0.0,
        )


def _messages_s(problem: Problem, each_s: float, per_byte_s: float) -> Floats:
    """Return (layers, layers): time for what a slice takes and gives, by first and last layer.

    Each tensor is taken once, and given once, as if one stage read it.
    """
    layers = len(problem.layers)
    steps = np.zeros((layers + 1, layers + 1))

    def add(seconds: float, first: range, last: range) -> None:
        """Count a message for slices that begin and end there."""
        if first and last:
            steps[first.start, last.start] += seconds
            steps[first.stop, last.start] -= seconds
            steps[first.start, last.stop] -= seconds
            steps[first.stop, last.stop] += seconds

    for tensor in problem.tensors:
        seconds = each_s
        if math.isfinite(tensor.nbytes):
            seconds += tensor.nbytes * per_byte_s
        made = producer_of(problem, tensor)
        readers = {*tensor.readers, *((problem.sink_layer,) if tensor.is_output else ())}
        after = [made, *sorted(reader for reader in readers if reader > made)]
        for before, reader in itertools.pairwise(after):
            add(seconds, range(before + 1, reader + 1), range(reader, layers))
        add(seconds, range(made + 1), range(made, after[-1]))
    found: Floats = np.cumsum(np.cumsum(steps, axis=0), axis=1)[:-1, :-1]
    return found


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
    return np.stack([table + each for each in alone])


def _counted_twice(problem: Problem) -> Floats:
    """Return (layers, layers): the size of weights that a span's layers share."""
    layers = len(problem.layers)
    again = np.zeros((layers, layers))
    for weight in problem.shared_weights:
        for one, other in itertools.pairwise(weight.readers):
            again[one, other] += weight.nbytes
    # Of each span, those whose both readers lie inside.
    inside: Floats = np.cumsum(np.cumsum(again[::-1], axis=0)[::-1], axis=1)
    return inside


def planned_seeds(problem: Problem) -> NDArray[np.int64]:
    """Return (n, layers): the fastest contiguous plans, for each set of different boards."""
    planner = ContiguousPlanner(problem)
    found = [planner.plan(devices) for devices in device_sets(problem)]
    rows = [planned.assignment for planned in found if planned is not None]
    return np.array(rows, np.int64).reshape(-1, len(problem.layers))


def device_sets(problem: Problem) -> Iterator[list[int]]:
    """Yield sets of devices worth a plan: all of each set of different boards; then of one kind.

    Of boards that are alike only how many there are counts. Where that makes too many sets, the
    first board, the first two and so on are taken.
    """
    subsets = list(_board_sets(problem))
    for boards in subsets:
        on_boards = [
            device for device, board in enumerate(problem.device_boards) if board in boards
        ]
        yield apart(problem, on_boards)
    if len(problem.times_s) > 1:
        for boards in (subsets[0], subsets[-1]):
            for kind in range(len(problem.times_s)):
                chosen = [
                    number
                    for number, device in enumerate(problem.devices)
                    if device.board in boards and device.kind == kind
                ]
                if chosen:
                    yield apart(problem, chosen)


def apart(problem: Problem, devices: Iterable[int]) -> list[int]:
    """Return the devices that can all compute at once: of those that share cores the first."""
    taken: set[tuple[int, int]] = set()
    found = []
    for number in devices:
        device = problem.devices[number]
        cores = {(device.board, core) for core in device.cores}
        if taken.isdisjoint(cores):
            taken |= cores
            found.append(number)
    return found


def _board_sets(problem: Problem) -> Iterator[frozenset[int]]:
    """Yield sets of boards, the smallest first."""
    classes: dict[object, list[int]] = {}
    for board in range(len(problem.boards)):
        classes.setdefault(_likeness(problem, board), []).append(board)
    counts = [range(len(boards) + 1) for boards in classes.values()]
    if math.prod(map(len, counts)) > _MAX_SUBSETS:
        for count in range(1, len(problem.boards) + 1):
            yield frozenset(range(count))
        return
    for chosen in sorted(itertools.product(*counts), key=sum):
        if any(chosen):
            yield frozenset(
                board
                for boards, count in zip(classes.values(), chosen, strict=True)
                for board in boards[:count]
            )


def _likeness(problem: Problem, board: int) -> object:
    """Return what boards have in common that can change places."""
    kinds = tuple(sorted(device.kind for device in problem.devices if device.board == board))
    links = np.delete(problem.bandwidth_bytes_s[board], board)
    return replace(problem.boards[board], name=""), kinds, tuple(sorted(links))


def planned_sweep(
    problem: Problem, objectives: Sequence[str], floor_fps: float = 0.0
) -> Iterator[NDArray[np.int64]]:
    """Yield exact plans that show what there is to choose from, (layers,) each.

    These are the fastest of each set of boards; then, of all boards, those of the least latency
    and energy that still reach a rate, and the fastest within a limit of memory, for rates and
    limits between the least and the greatest (the epsilon-constraint method).

    Args:
        problem: layers and devices.
        objectives: which of ``energy``, ``memory`` and ``latency`` matter.
        floor_fps: a rate of special interest.
    """
    planner = ContiguousPlanner(problem)
    fastest = planned_seeds(problem)
    yield from fastest
    if not len(fastest):
        return
    everywhere = apart(problem, range(len(problem.devices)))
    floors = _floors(evaluate(problem, fastest, latency=False).bottleneck_s)
    floors += [floor_fps] if floor_fps else []
    wanted: list[Objective] = []
    wanted += ["energy"] if "energy" in objectives else []
    wanted += ["latency"] if "latency" in objectives else []
    for objective, floor in itertools.product(wanted, floors):
        planned = planner.plan(everywhere, objective, floor)
        if planned is not None:
            yield planned.assignment
    if "memory" in objectives:
        yield from _within_memory(planner, fastest)


def _floors(bottlenecks_s: Floats) -> list[float]:
    """Return rates up to the fastest one; what takes no time at all reaches any rate."""
    known = bottlenecks_s[np.isfinite(bottlenecks_s) & (bottlenecks_s > 0)]
    fastest = 1 / float(known.min()) if known.size else 1.0
    return [float(step) for step in np.linspace(0, fastest, _LIMITS + 1)[1:]]


def _within_memory(
    planner: ContiguousPlanner, fastest: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """Yield the fastest plans within less and less memory per board, until there is none."""
    problem = planner.problem
    everywhere = apart(problem, range(len(problem.devices)))
    start = most = float(evaluate(problem, fastest, latency=False).memory_bytes.max())
    lower = 0.0
    for _ in range(_LIMITS):  # first find what is the least that will do
        middle = (lower + most) / 2
        planned = planner.plan(everywhere, most_bytes=middle)
        if planned is None:
            lower = middle
        else:
            yield planned.assignment
            most = middle
    for limit in np.linspace(most, start, _LIMITS + 2)[1:-1]:
        planned = planner.plan(everywhere, most_bytes=float(limit))
        if planned is not None:
            yield planned.assignment
