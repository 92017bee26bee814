"""From the planner's arguments to a chain: checks of all numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankslice.exploration.planner.arguments import (
    ArgumentError,
    Device,
    Floats,
    LayerChain,
    raise_faults,
)
from rankslice.exploration.planner.chain import Chain
from rankslice.framework.errors import Mistake
from rankslice.framework.wording import bare, quoted


def make_chain(given: LayerChain, *, counts_power: bool = True, most_turns: int = 1) -> Chain:
    """Return a chain whose numbers are checked.

    Raises:
        ArgumentError: All that is wrong with them, at once.
    """
    times = _numbers(given.times_s, "times_s", endless=True)
    if times.ndim != 2 or 0 in times.shape:
        raise ArgumentError(_misshapen("times_s", times, "(kinds, layers), one of each at least"))
    kinds, layers = times.shape
    devices = tuple(given.devices)
    raise_faults(_device_mistakes(devices, kinds))
    board_of, capacity = _boards(devices)
    spans = given.spans_s
    sent = _shaped(given.output_bytes, "output_bytes", {(layers,): "(layers,)"}, endless=True)
    rates = _by_pairs(given.bandwidth_bytes_s, "bandwidth_bytes_s", len(devices), endless=True)
    latency = _by_pairs(given.latency_s, "latency_s", len(devices), endless=False)
    link_of, link_s = _links(devices, board_of, sent, rates, latency)
    return Chain(
        devices,
        times,
        spans if spans is None or callable(spans) else _spans(spans, kinds, layers),
        _memory(given.memory_bytes, kinds, layers),
        _by_layer(given.receive_memory_bytes, "receive_memory_bytes", layers),
        _by_layer(given.send_memory_bytes, "send_memory_bytes", layers),
        board_of,
        capacity,
        link_of,
        link_s,
        np.concatenate([[False], np.isinf(sent[:-1]), [False]]),
        counts_power,
        most_turns,
    )


def _numbers(given: ArrayLike, where: str, *, endless: bool) -> Floats:
    """Return an array of numbers, none negative, finite unless they may be ``endless``."""
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(Mistake(where, "is not an array of numbers")) from None
    wrong = np.isnan(values) | (values < 0)
    if not endless:
        wrong |= np.isinf(values)
    if wrong.any():
        index = np.unravel_index(int(wrong.argmax()), values.shape)
        at = f"{where}[{', '.join(map(str, index))}]" if index else where
        expected = "expected no negative number" + ("" if endless else ", and a finite one")
        raise ArgumentError(Mistake(at, f"is {values[index]}", expected))
    return values


def _misshapen(where: str, values: Floats, expected: str) -> Mistake:
    return Mistake(where, f"has the shape {values.shape}", f"expected {expected}")


def _shaped(
    given: ArrayLike, where: str, shapes: dict[tuple[int, ...], str], *, endless: bool = False
) -> Floats:
    values = _numbers(given, where, endless=endless)
    if values.shape not in shapes:
        expected = " or ".join(f"{text}, here {shape}" for shape, text in shapes.items())
        raise ArgumentError(_misshapen(where, values, expected))
    return values


def _by_layer(given: ArrayLike, where: str, layers: int) -> Floats:
    values = _shaped(given, where, {(layers,): "(layers,)", (): "one number"})
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
        raise ArgumentError(
            Mistake("spans_s", "is neither an array of numbers nor a function")
        ) from None
    if values.shape != (kinds, layers, layers):
        expected = f"(kinds, layers, layers), here {(kinds, layers, layers)}"
        raise ArgumentError(_misshapen("spans_s", values, expected))
    return values


def _by_pairs(given: ArrayLike, where: str, devices: int, *, endless: bool) -> Floats:
    shapes = {(devices, devices): "(devices, devices)", (): "one number"}
    values = _shaped(given, where, shapes, endless=endless)
    return np.broadcast_to(values, (devices, devices))


def _device_mistakes(devices: tuple[Device, ...], kinds: int) -> Iterator[Mistake]:
    if not devices:
        yield Mistake("devices", "none are given", "expected one at least")
    names: set[str] = set()
    boards: dict[str, Device] = {}
    for index, device in enumerate(devices):
        where = f"devices[{index}]"
        if device.name in names:
            yield Mistake(f"{where}.name", f"{quoted(device.name)} appears again")
        names.add(device.name)
        if not 0 <= device.kind < kinds:
            found = f"there is no row {device.kind} in times_s"
            yield Mistake(f"{where}.kind", found, f"expected 0 to {kinds - 1}")
        yield from _figure_mistakes(device, where)
        if device.board and not _is_same_board(
            first := boards.setdefault(device.board, device), device
        ):
            found = f"memory, bandwidth or idle power of {bare(device.board)} differ"
            yield Mistake(
                where, found, f"expected those of {quoted(first.name)}, on the same board"
            )


def _figure_mistakes(device: Device, where: str) -> Iterator[Mistake]:
    for name in ("memory_bytes", "bandwidth_bytes_s", "busy_w", "idle_w"):
        value = getattr(device, name)
        most = math.inf if name.endswith(("bytes", "bytes_s")) else 1e300
        if value is not None and not 0 <= value <= most:
            yield Mistake(f"{where}.{name}", f"is {value}", "expected no negative number")


def _is_same_board(one: Device, other: Device) -> bool:
    return (one.memory_bytes, one.bandwidth_bytes_s, one.idle_w) == (
        other.memory_bytes,
        other.bandwidth_bytes_s,
        other.idle_w,
    )


def _boards(devices: tuple[Device, ...]) -> tuple[tuple[int, ...], tuple[float, ...]]:
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
