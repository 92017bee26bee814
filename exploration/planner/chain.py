"""A chain of layers, the devices it may be cut over, and plans: slices on devices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_ROUNDING = 4 * float(np.finfo(np.float64).eps)


class ArgumentError(RankSliceError, ValueError):
    """Arguments that describe no chain of layers, or no devices."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator that may get a slice."""

    name: str
    """Unique: it identifies the slice."""
    kind: int
    """Row of the time table: devices of one row take the same time for the same layers."""
    board: str = ""
    """Devices of one board share its memory; empty: a board of its own."""
    memory_bytes: float = math.inf
    """Of the board, so the same for all of its devices."""
    bandwidth_bytes_s: float = math.inf
    """Of the board's network: a message between two boards takes the smaller one."""
    busy_w: float | None = None
    """Power it draws while it computes, on top of ``idle_w``; None: not known."""
    idle_w: float = 0.0
    """Power that its board draws as long as it is used at all; once for all of its devices."""


@dataclass(frozen=True, slots=True)
class LayerChain:
    """Layers one after the other, and the devices over which they may be cut."""

    times_s: ArrayLike
    """(kinds, layers): time of each layer on each kind of device in s; infinite where it cannot
    run. A slice takes the sum, unless ``spans_s`` says otherwise."""
    output_bytes: ArrayLike
    """(layers,) or (rows, layers): bytes that cross the cut behind each layer. If layers are read
    by others than the next one, count everything that is made before the cut and read behind it.
    Infinite: there can be no cut. The last layer's bytes are not sent."""
    memory_bytes: ArrayLike
    """(layers,), (kinds, layers), or (kinds, layers, layers) for spans: what layers take of the
    memory of the board they are on."""
    devices: Sequence[Device]
    """Each is used at most once."""
    spans_s: ArrayLike | None = None
    """(kinds, layers, layers): time of the slice from a first to a last layer, instead of sums. It
    need not grow with the span. A slice that has a layer with an infinite time is infinite
    nevertheless."""
    receive_memory_bytes: ArrayLike = 0.0
    """(layers,): memory on top for what a slice receives, by first layer."""
    send_memory_bytes: ArrayLike = 0.0
    """(layers,): memory on top for what a slice sends, by last layer."""
    bandwidth_bytes_s: ArrayLike = math.inf
    """(devices, devices), from row to column, or one number. Between two boards a message takes
    the smallest of this and the two devices' own."""
    output_row: ArrayLike = 0
    """(devices, devices) or one number: the row of ``output_bytes`` for a message, if links carry
    tensors as different types."""
    latency_s: ArrayLike = 0.0
    """(devices, devices) or one number: added to each message, in s."""


def raise_faults(mistakes: Iterator[Mistake]) -> None:
    try:
        raise_mistakes(mistakes)
    except RankSliceError as error:
        raise ArgumentError(*error.mistakes) from None


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """One slice of a plan."""

    devices: tuple[int, ...]
    """Of one type. Several take turns, frame by frame, in this order: ascending."""
    first: int
    """Cut before its first layer."""
    end: int
    """Cut behind its last layer."""

    @property
    def turns(self) -> int:
        """How many devices take turns: each gets one frame of so many."""
        return len(self.devices)


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages at one cut."""

    longest_s: float
    load_s: float
    """For how long per frame the busiest device, or cable of a board, sends or receives."""


@dataclass(frozen=True)
class Chain:
    """A :class:`LayerChain` with checked numbers, and tables that are made of them on demand.

    A *cut* is a number from 0 to ``layers``: cut ``c`` lies before layer ``c``. A slice goes from
    one cut to a later one, so tables of spans are (cuts, cuts).
    """

    devices: tuple[Device, ...]
    times_s: Floats
    """(kinds, layers)"""
    spans_s: Floats | None
    memory_bytes: Floats
    """(kinds, layers), or (kinds, layers, layers) for spans."""
    receive_bytes: Floats
    """(layers,): memory for what a slice receives, by its first layer."""
    send_bytes: Floats
    """(layers,): memory for what a slice sends, by its last layer."""
    board_of: tuple[int, ...]
    """Device -> board."""
    capacity_bytes: tuple[float, ...]
    link_of: NDArray[np.intp]
    """(devices, devices): row of ``link_s`` for a message from the one to the other."""
    link_s: Floats
    """(links + 1, cuts): time of the message at a cut; infinite where no message can be. The last
    row stands for no message at all: the first slice's."""
    closed: Flags
    """(cuts,): where there can be no cut, whatever the link."""
    counts_power: bool = True
    """Whether devices that differ only in power count as different."""
    most_turns: int = 1

    @property
    def layers(self) -> int:
        return int(self.times_s.shape[1])

    @property
    def cuts(self) -> int:
        return self.layers + 1

    @cached_property
    def types(self) -> tuple[tuple[int, float, float], ...]:
        """Kind, memory and power of each type of device: to one slice its devices are alike.

        Where devices can take turns, only as far as its time and memory go: 0 is for any power.
        """
        return tuple(dict.fromkeys(map(self._type, range(len(self.devices)))))

    @cached_property
    def type_of(self) -> tuple[int, ...]:
        """Device -> type."""
        index = {key: number for number, key in enumerate(self.types)}
        return tuple(index[self._type(device)] for device in range(len(self.devices)))

    def _type(self, device: int) -> tuple[int, float, float]:
        it = self.devices[device]
        # Whoever takes turns may draw another power than the others.
        watts = it.busy_w or 0.0 if self.counts_power and self.most_turns == 1 else 0.0
        return it.kind, self.capacity_bytes[self.board_of[device]], watts

    @cached_property
    def boards(self) -> tuple[tuple[int, ...], ...]:
        """Board -> its devices."""
        devices: list[list[int]] = [[] for _ in self.capacity_bytes]
        for device, board in enumerate(self.board_of):
            devices[board].append(device)
        return tuple(map(tuple, devices))

    @cached_property
    def span_s(self) -> tuple[Floats, ...]:
        """Type -> time of each span, (cuts, cuts); infinite where it cannot be computed."""
        tables = {kind: self._span_table(kind) for kind in {kind for kind, _, _ in self.types}}
        return tuple(tables[kind] for kind, _, _ in self.types)

    def _span_table(self, kind: int) -> Floats:
        sums = _running_sums(self.times_s[kind])
        if self.spans_s is None:
            return by_cuts(sums)
        return by_cuts(np.where(np.isinf(sums), np.inf, self.spans_s[kind]))

    @cached_property
    def span_bytes(self) -> tuple[Floats, ...]:
        """Type -> memory that a slice of each span takes, (cuts, cuts)."""
        tables = {kind: self._memory_table(kind) for kind in {kind for kind, _, _ in self.types}}
        return tuple(tables[kind] for kind, _, _ in self.types)

    def _memory_table(self, kind: int) -> Floats:
        nbytes = self.memory_bytes[kind]
        held = nbytes if nbytes.ndim == 2 else _running_sums(nbytes)
        return by_cuts(held + self.receive_bytes[:, None] + self.send_bytes[None, :])

    @cached_property
    def fits(self) -> tuple[Flags, ...]:
        """Type -> whether a device can compute a span and hold it alone, (cuts, cuts)."""
        return tuple(
            np.isfinite(span) & (held <= memory)
            for span, held, (_, memory, _) in zip(
                self.span_s, self.span_bytes, self.types, strict=True
            )
        )

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """Type -> how many of its devices can take turns on a slice."""
        return tuple(
            min(self.type_of.count(index), self.most_turns) for index in range(len(self.types))
        )

    def slice_s(self, part: PlacedSlice) -> float:
        """Return the time of a slice: that of the table, without making all of it."""
        device = part.devices[0]
        if self.spans_s is None:
            times = self.times_s[self.devices[device].kind]
            return float(np.cumsum(times[part.first : part.end])[-1])
        return float(self.span_s[self.type_of[device]][part.first, part.end])

    def slice_bytes(self, part: PlacedSlice) -> float:
        """Return the memory that a slice takes of the board of each of its devices."""
        first, end = part.first, part.end
        nbytes = self.memory_bytes[self.devices[part.devices[0]].kind]
        held = nbytes[first, end - 1] if nbytes.ndim == 2 else np.cumsum(nbytes[first:end])[-1]
        return float(held + self.receive_bytes[first] + self.send_bytes[end - 1])

    def messages(self, senders: tuple[int, ...], receivers: tuple[int, ...], cut: int) -> Messages:
        """Return the messages at a cut between devices that take turns, and others.

        Each frame goes from the one that has it to the one whose turn it is. What leaves a board
        over its cable adds up, and what enters it.
        """
        if len(senders) == len(receivers) == 1:
            time = float(self.link_s[self.link_of[senders[0], receivers[0]], cut])
            return Messages(time, time)
        frames = np.arange(math.lcm(len(senders), len(receivers)))
        sender = np.array(senders)[frames % len(senders)]
        receiver = np.array(receivers)[frames % len(receivers)]
        times = self.link_s[self.link_of[sender, receiver], cut]
        boards = np.array(self.board_of)
        across = np.where(boards[sender] == boards[receiver], 0.0, times)
        busy_s = (
            np.bincount(which, seconds).max()
            for ends, seconds in ((np.arange(len(boards)), times), (boards, across))
            for which in (ends[sender], ends[receiver])
        )
        return Messages(float(times.max()), float(max(busy_s)) / frames.size)

    def messages_behind(self, plan: tuple[PlacedSlice, ...], index: int) -> Messages:
        """Return the messages behind a slice of a plan; behind the last one there are none."""
        if index + 1 == len(plan):
            return Messages(0.0, 0.0)
        one, other = plan[index], plan[index + 1]
        return self.messages(one.devices, other.devices, one.end)

    def bottleneck_s(self, plan: tuple[PlacedSlice, ...]) -> float:
        """Return how long the busiest device or cable is busy per frame.

        Infinite: the plan cannot be, as memory does not suffice or devices in turn differ.
        """
        held = [0.0] * len(self.boards)
        for part in plan:
            for device in part.devices:
                held[self.board_of[device]] += self.slice_bytes(part)
        types = ({self.type_of[device] for device in part.devices} for part in plan)
        is_full = any(one > most for one, most in zip(held, self.capacity_bytes, strict=True))
        if is_full or any(len(one) > 1 for one in types):
            return math.inf
        slices = (self.slice_s(part) / part.turns for part in plan)
        messages = (self.messages_behind(plan, index).load_s for index in range(len(plan)))
        return max(*slices, *messages)

    @property
    def shares_memory(self) -> bool:
        """Whether two slices may have to share the memory of one board."""
        return any(
            len(devices) > 1 and math.isfinite(memory)
            for devices, memory in zip(self.boards, self.capacity_bytes, strict=True)
        )


def limit_in_turn(limit: float, turns: int) -> float:
    """Return how long a slice or a message may take of which a device gets one in so many.

    It is no less than that, and more by rounding only.
    """
    return limit if turns == 1 else limit * turns * (1 + _ROUNDING)


def _running_sums(values: Floats) -> Floats:
    """Return the sum of each span, (layers, layers); added up from its first layer on."""
    sums = np.triu(np.broadcast_to(values, (values.size, values.size)))
    return np.cumsum(sums, axis=1, out=sums)


def by_cuts(spans: Floats) -> Floats:
    """Return a table by cuts, (cuts, cuts), of one by first and last layer."""
    layers = spans.shape[0]
    table = np.full((layers + 1, layers + 1), np.inf)
    upper = np.triu(np.ones((layers, layers), np.bool_))
    table[:-1, 1:][upper] = spans[upper]
    return table
