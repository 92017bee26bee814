"""A chain of layers and the devices it may be cut over: checked, and as tables of spans."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.wording import bare, quoted

__all__ = ["ArgumentError", "Chain", "Device", "Floats", "SpanTimes", "make_chain"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
SpanTimes = Callable[[int], ArrayLike]
"""Row of the time table -> times of all its spans in s, (layers, layers): [first, last]."""


class ArgumentError(RankSliceError, ValueError):
    """Arguments that describe no chain of layers, or no devices."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator that may get a slice."""

    name: str
    """Each name once: slices are told by it."""
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


@dataclass(frozen=True)
class Chain:
    """What is to be placed, and where: checked numbers, and tables made of them when asked for.

    A *cut* is a number from 0 to ``layers``: cut ``c`` lies before layer ``c``. A slice goes from
    one cut to a later one, so tables of spans are (cuts, cuts).
    """

    devices: tuple[Device, ...]
    times_s: Floats
    """(kinds, layers)"""
    spans_s: Floats | SpanTimes | None
    memory_bytes: Floats
    """(kinds, layers), or (kinds, layers, layers) for spans."""
    receive_bytes: Floats
    """(layers,): memory for what a slice receives, by its first layer."""
    send_bytes: Floats
    """(layers,): memory for what a slice sends, by its last layer."""
    board_of: tuple[int, ...]
    """Device -> board."""
    capacity_bytes: tuple[float, ...]
    """Board -> its memory."""
    link_of: NDArray[np.intp]
    """(devices, devices): row of ``link_s`` for a message from the one to the other."""
    link_s: Floats
    """(links + 1, cuts): time of the message at a cut; infinite where no message can be. The last
    row stands for no message at all: the first slice's."""
    closed: Flags
    """(cuts,): where there can be no cut, whatever the link."""
    counts_power: bool = True
    """Whether devices that differ in their power alone are told apart."""

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.times_s.shape[1])

    @property
    def cuts(self) -> int:
        """Number of cuts: one more than layers."""
        return self.layers + 1

    @cached_property
    def types(self) -> tuple[tuple[int, float, float], ...]:
        """Kind, memory and power of each type of device: to one slice its devices are alike."""
        return tuple(dict.fromkeys(map(self._type, range(len(self.devices)))))

    @cached_property
    def type_of(self) -> tuple[int, ...]:
        """Device -> type."""
        index = {key: number for number, key in enumerate(self.types)}
        return tuple(index[self._type(device)] for device in range(len(self.devices)))

    def _type(self, device: int) -> tuple[int, float, float]:
        it = self.devices[device]
        watts = it.busy_w or 0.0 if self.counts_power else 0.0
        return it.kind, self.capacity_bytes[self.board_of[device]], watts

    @cached_property
    def boards(self) -> tuple[tuple[int, ...], ...]:
        """Board -> its devices."""
        found: list[list[int]] = [[] for _ in self.capacity_bytes]
        for device, board in enumerate(self.board_of):
            found[board].append(device)
        return tuple(map(tuple, found))

    @cached_property
    def span_s(self) -> tuple[Floats, ...]:
        """Type -> time of each span, (cuts, cuts); infinite where it cannot be computed."""
        tables = {kind: self._span_table(kind) for kind in {kind for kind, _, _ in self.types}}
        return tuple(tables[kind] for kind, _, _ in self.types)

    def _span_table(self, kind: int) -> Floats:
        sums = _running_sums(self.times_s[kind])
        if self.spans_s is None:
            return _by_cuts(sums)
        given = self.spans_s(kind) if callable(self.spans_s) else self.spans_s[kind]
        table = _checked_spans(np.asarray(given, np.float64), self.layers, kind)
        return _by_cuts(np.where(np.isinf(sums), np.inf, table))

    @cached_property
    def span_bytes(self) -> tuple[Floats, ...]:
        """Type -> memory that a slice of each span takes, (cuts, cuts)."""
        tables = {kind: self._memory_table(kind) for kind in {kind for kind, _, _ in self.types}}
        return tuple(tables[kind] for kind, _, _ in self.types)

    def _memory_table(self, kind: int) -> Floats:
        given = self.memory_bytes[kind]
        held = given if given.ndim == 2 else _running_sums(given)
        return _by_cuts(held + self.receive_bytes[:, None] + self.send_bytes[None, :])

    @cached_property
    def fits(self) -> tuple[Flags, ...]:
        """Type -> whether a device can compute a span and hold it alone, (cuts, cuts)."""
        return tuple(
            np.isfinite(span) & (held <= memory)
            for span, held, (_, memory, _) in zip(
                self.span_s, self.span_bytes, self.types, strict=True
            )
        )

    def slice_s(self, device: int, first: int, end: int) -> float:
        """Return the time of one span on a device: that of the table, without making all of it."""
        kind = self.devices[device].kind
        if self.spans_s is None:
            return float(np.cumsum(self.times_s[kind, first:end])[-1])
        return float(self.span_s[self.type_of[device]][first, end])

    def slice_bytes(self, device: int, first: int, end: int) -> float:
        """Return the memory of one span on a device: that of the table, without making it."""
        given = self.memory_bytes[self.devices[device].kind]
        held = given[first, end - 1] if given.ndim == 2 else np.cumsum(given[first:end])[-1]
        return float(held + self.receive_bytes[first] + self.send_bytes[end - 1])

    @property
    def shares_memory(self) -> bool:
        """Whether two slices may have to share the memory of one board."""
        return any(
            len(devices) > 1 and math.isfinite(memory)
            for devices, memory in zip(self.boards, self.capacity_bytes, strict=True)
        )


def _running_sums(values: Floats) -> Floats:
    """Return the sum of each span, (layers, layers); added up from its first layer on."""
    sums = np.triu(np.broadcast_to(values, (values.size, values.size)))
    return np.cumsum(sums, axis=1, out=sums)


def _by_cuts(spans: Floats) -> Floats:
    """Return a table by cuts of a table by first and last layer."""
    layers = spans.shape[0]
    table = np.full((layers + 1, layers + 1), np.inf)
    upper = np.triu(np.ones((layers, layers), np.bool_))
    table[:-1, 1:][upper] = spans[upper]
    return table


def _checked_spans(table: Floats, layers: int, kind: int) -> Floats:
    """Return a kind's table of spans, in which only the upper triangle counts."""
    place = f"spans_s[{kind}]"
    if table.shape != (layers, layers):
        shape = f"has the shape {table.shape}"
        raise ArgumentError(Mistake(place, shape, f"expected {(layers, layers)}"))
    upper = np.triu(table)
    if np.isnan(upper).any() or (upper < 0).any():
        raise ArgumentError(Mistake(place, "has times that are negative or no number"))
    return table


def make_chain(
    times_s: ArrayLike,
    output_bytes: ArrayLike,
    memory_bytes: ArrayLike,
    devices: Sequence[Device],
    *,
    spans_s: ArrayLike | SpanTimes | None = None,
    receive_memory_bytes: ArrayLike = 0.0,
    send_memory_bytes: ArrayLike = 0.0,
    bandwidth_bytes_s: ArrayLike = math.inf,
    latency_s: ArrayLike = 0.0,
    counts_power: bool = True,
) -> Chain:
    """Return the chain that :func:`rankslice.exploration.optimal_pipeline`'s arguments describe.

    Raises:
        ArgumentError: All that is wrong with them, at once.
    """
    times = _numbers(times_s, "times_s", endless=True)
    if times.ndim != 2 or 0 in times.shape:
        raise ArgumentError(_misshapen("times_s", times, "(kinds, layers), one of each at least"))
    kinds, layers = times.shape
    devices = tuple(devices)
    raise_faults(_device_mistakes(devices, kinds))
    spans = spans_s if spans_s is None or callable(spans_s) else _spans(spans_s, kinds, layers)
    board_of, capacity = _boards(devices)
    sent = _shaped(output_bytes, "output_bytes", {(layers,): "(layers,)"}, endless=True)
    link_of, link_s = _links(
        devices,
        board_of,
        sent,
        _pairs(bandwidth_bytes_s, "bandwidth_bytes_s", len(devices), endless=True),
        _pairs(latency_s, "latency_s", len(devices), endless=False),
    )
    return Chain(
        devices,
        times,
        spans,
        _memory(memory_bytes, kinds, layers),
        _by_layer(receive_memory_bytes, "receive_memory_bytes", layers),
        _by_layer(send_memory_bytes, "send_memory_bytes", layers),
        board_of,
        capacity,
        link_of,
        link_s,
        np.concatenate([[False], np.isinf(sent[:-1]), [False]]),
        counts_power,
    )


def raise_faults(mistakes: Iterator[Mistake]) -> None:
    """Raise one :class:`ArgumentError` with the mistakes, or return if there are none."""
    try:
        raise_mistakes(mistakes)
    except RankSliceError as error:
        raise ArgumentError(*error.mistakes) from None


def _numbers(given: ArrayLike, place: str, *, endless: bool) -> Floats:
    """Return an array of numbers, none negative, finite unless they may be ``endless``."""
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(Mistake(place, "is no array of numbers")) from None
    wrong = np.isnan(values) | (values < 0)
    if not endless:
        wrong |= np.isinf(values)
    if wrong.any():
        index = np.unravel_index(int(wrong.argmax()), values.shape)
        where = f"{place}[{', '.join(map(str, index))}]" if index else place
        expected = "expected no negative number" + ("" if endless else ", and a finite one")
        raise ArgumentError(Mistake(where, f"is {values[index]}", expected))
    return values


def _misshapen(place: str, values: Floats, expected: str) -> Mistake:
    return Mistake(place, f"has the shape {values.shape}", f"expected {expected}")


def _shaped(
    given: ArrayLike, place: str, shapes: dict[tuple[int, ...], str], *, endless: bool = False
) -> Floats:
    values = _numbers(given, place, endless=endless)
    if values.shape not in shapes:
        expected = " or ".join(f"{text}, here {shape}" for shape, text in shapes.items())
        raise ArgumentError(_misshapen(place, values, expected))
    return values


def _by_layer(given: ArrayLike, place: str, layers: int) -> Floats:
    values = _shaped(given, place, {(layers,): "(layers,)", (): "one number"})
    return np.broadcast_to(values, (layers,))


def _memory(given: ArrayLike, kinds: int, layers: int) -> Floats:
    shapes = {
        (layers,): "(layers,)",
        (kinds, layers): "(kinds, layers)",
        (kinds, layers, layers): "(kinds, layers, layers)",
    }
    values = _shaped(given, "memory_bytes", shapes)
    if values.ndim == 3:
        return values
    return np.broadcast_to(values, (kinds, layers))


def _spans(given: ArrayLike, kinds: int, layers: int) -> Floats:
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(Mistake("spans_s", "is no array of numbers, and no function")) from None
    if values.shape != (kinds, layers, layers):
        expected = f"(kinds, layers, layers), here {(kinds, layers, layers)}"
        raise ArgumentError(_misshapen("spans_s", values, expected))
    return values


def _pairs(given: ArrayLike, place: str, devices: int, *, endless: bool) -> Floats:
    shapes = {(devices, devices): "(devices, devices)", (): "one number"}
    values = _shaped(given, place, shapes, endless=endless)
    return np.broadcast_to(values, (devices, devices))


def _device_mistakes(devices: tuple[Device, ...], kinds: int) -> Iterator[Mistake]:
    if not devices:
        yield Mistake("devices", "there are none", "expected one at least")
    names: set[str] = set()
    boards: dict[str, Device] = {}
    for index, device in enumerate(devices):
        place = f"devices[{index}]"
        if device.name in names:
            yield Mistake(f"{place}.name", f"{quoted(device.name)} stands there again")
        names.add(device.name)
        if not 0 <= device.kind < kinds:
            found = f"there is no row {device.kind} in times_s"
            yield Mistake(f"{place}.kind", found, f"expected 0 to {kinds - 1}")
        yield from _figure_mistakes(device, place)
        if device.board and not _is_same_board(
            first := boards.setdefault(device.board, device), device
        ):
            found = f"memory, bandwidth or idle power of {bare(device.board)} differ"
            yield Mistake(
                place, found, f"expected those of {quoted(first.name)}, on the same board"
            )


def _figure_mistakes(device: Device, place: str) -> Iterator[Mistake]:
    for name in ("memory_bytes", "bandwidth_bytes_s", "busy_w", "idle_w"):
        value = getattr(device, name)
        most = math.inf if name.endswith(("bytes", "bytes_s")) else 1e300
        if value is not None and not 0 <= value <= most:
            yield Mistake(f"{place}.{name}", f"is {value}", "expected no negative number")


def _is_same_board(one: Device, other: Device) -> bool:
    return (one.memory_bytes, one.bandwidth_bytes_s, one.idle_w) == (
        other.memory_bytes,
        other.bandwidth_bytes_s,
        other.idle_w,
    )


def _boards(devices: tuple[Device, ...]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return each device's board, and each board's memory."""
    keys = [
        ("board", device.board) if device.board else ("device", device.name) for device in devices
    ]
    number = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    memory = {number[key]: device.memory_bytes for key, device in zip(keys, devices, strict=True)}
    return tuple(number[key] for key in keys), tuple(memory[index] for index in range(len(memory)))


def _links(
    devices: tuple[Device, ...],
    board_of: tuple[int, ...],
    output_bytes: Floats,
    bandwidth: Floats,
    latency: Floats,
) -> tuple[NDArray[np.intp], Floats]:
    """Return the link between any two devices, and how long each link takes at each cut."""
    own = np.array([device.bandwidth_bytes_s for device in devices])
    boards = np.array(board_of)
    network = np.minimum.outer(own, own)
    network[boards[:, None] == boards[None, :]] = np.inf
    rates = np.minimum(network, bandwidth)
    pairs = np.stack([rates.ravel(), latency.ravel()], axis=1)
    links, link_of = np.unique(pairs, axis=0, return_inverse=True)
    times = np.full((len(links) + 1, output_bytes.size + 1), np.inf)
    times[-1] = 0.0
    crossing = output_bytes[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        sent = np.where(crossing == 0, 0.0, crossing / links[:, :1])
    sent[:, np.isinf(crossing)] = np.inf
    times[:-1, 1:-1] = sent + links[:, 1:]
    return link_of.reshape(rates.shape), times
