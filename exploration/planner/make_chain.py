"""From the planner's arguments to a chain: checks of all numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankslice.exploration.planner.chain import (
    ArgumentError,
    Chain,
    Device,
    Floats,
    LayerChain,
    raise_faults,
)
from rankslice.framework.errors import Mistake
from rankslice.framework.wording import bare, quoted


def make_chain(arguments: LayerChain, *, counts_power: bool = True, most_turns: int = 1) -> Chain:
    """Return a chain whose numbers are checked.

    Raises:
        ArgumentError: what is wrong with them; of devices all mistakes at once.
    """
    times = _numbers(arguments.times_s, "times_s", endless=True)
    if times.ndim != 2 or 0 in times.shape:
        raise _misshapen("times_s", times, "(kinds, layers), one of each at least")
    kinds, layers = times.shape
    devices = tuple(arguments.devices)
    raise_faults(_device_mistakes(devices, kinds))
    sizes = {"kinds": kinds, "layers": layers, "devices": len(devices)}

    def read(name: str, *shapes: tuple[str, ...], endless: bool = False) -> Floats:
        """Return an argument that has one of some shapes; () is that of one number."""
        values = _numbers(getattr(arguments, name), name, endless=endless)
        by_size = {tuple(sizes[axis] for axis in shape): shape for shape in shapes}
        if values.shape not in by_size:
            expected = [f"({', '.join(shape)}), here {size}" for size, shape in by_size.items()]
            raise _misshapen(name, values, " or ".join(expected))
        return values

    def by_layer(name: str) -> Floats:
        return np.broadcast_to(read(name, ("layers",), ()), (layers,))

    def by_pairs(name: str, *, endless: bool) -> Floats:
        pairs = "devices", "devices"
        return np.broadcast_to(read(name, pairs, (), endless=endless), (len(devices),) * 2)

    by_spans = "kinds", "layers", "layers"
    memory = read("memory_bytes", ("layers",), ("kinds", "layers"), by_spans)
    sent = np.atleast_2d(_numbers(arguments.output_bytes, "output_bytes", endless=True))
    if sent.ndim != 2 or sent.shape[1] != layers:
        expected = f"(layers), here ({layers},), or (rows, layers)"
        raise _misshapen("output_bytes", np.asarray(arguments.output_bytes), expected)
    board_of, capacity = _boards(devices)
    link_of, link_s = _links(
        devices,
        board_of,
        sent,
        by_pairs("bandwidth_bytes_s", endless=True),
        by_pairs("latency_s", endless=False),
        by_pairs("output_row", endless=False).astype(int),
    )
    return Chain(
        devices,
        times,
        None if arguments.spans_s is None else read("spans_s", by_spans, endless=True),
        memory if memory.ndim == 3 else np.broadcast_to(memory, times.shape),
        by_layer("receive_memory_bytes"),
        by_layer("send_memory_bytes"),
        board_of,
        capacity,
        link_of,
        link_s,
        np.concatenate([[False], np.isinf(sent[:, :-1]).any(axis=0), [False]]),
        counts_power,
        most_turns,
    )


def _numbers(values_like: ArrayLike, where: str, *, endless: bool) -> Floats:
    """Return an array of numbers, none negative, finite unless they may be ``endless``.

    Of spans, the last two of three axes, only those count whose last layer is not before the first.
    """
    try:
        values = np.asarray(values_like, np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(Mistake(where, "is not an array of numbers")) from None
    counting = np.triu(values) if values.ndim == 3 else values
    wrong = np.isnan(counting) | (counting < 0)
    if not endless:
        wrong |= np.isinf(counting)
    if wrong.any():
        index = np.unravel_index(int(wrong.argmax()), values.shape)
        at = f"{where}[{', '.join(map(str, index))}]" if index else where
        expected = "expected no negative number" + ("" if endless else ", and a finite one")
        raise ArgumentError(Mistake(at, f"is {values[index]}", expected))
    return values


def _misshapen(where: str, values: Floats, expected: str) -> ArgumentError:
    return ArgumentError(Mistake(where, f"has the shape {values.shape}", f"expected {expected}"))


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
    rows: NDArray[np.int64],
) -> tuple[NDArray[np.intp], Floats]:
    """Return the link between any two devices, and how long each link takes at each cut."""
    own = np.array([device.bandwidth_bytes_s for device in devices])
    boards = np.array(board_of)
    network = np.minimum.outer(own, own)
    network[boards[:, None] == boards[None, :]] = np.inf
    rates = np.minimum(network, bandwidth)
    pairs = np.stack([rates.ravel(), latency.ravel(), rows.ravel()], axis=1)
    links, link_of = np.unique(pairs, axis=0, return_inverse=True)
    times = np.full((len(links) + 1, output_bytes.shape[1] + 1), np.inf)
    times[-1] = 0.0
    crossing = output_bytes[links[:, 2].astype(int), :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        sent = np.where(crossing == 0, 0.0, crossing / links[:, :1])
    sent[np.isinf(crossing)] = np.inf
    times[:-1, 1:-1] = sent + links[:, 1:2]
    return link_of.reshape(rates.shape), times
