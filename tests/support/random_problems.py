"""Small random problems of mapping: skips, several accelerators to a board, every odd value."""

from __future__ import annotations

import math

import numpy as np

from rankslice.exploration.problem.devices import Device
from rankslice.exploration.problem.problem import BoardCosts, LayerTensor, Problem
from rankslice.exploration.problem.runtime_costs import NO_OVERHEADS, Overheads
from rankslice.exploration.times.span_times import summed_spans

OVERHEADS = Overheads(0.02, 0.01, "given", 0.05, 0.03, 0.005, convert_s_per_byte=0.01)


def random_problem(seed: int, layers: int = 6, devices: int = 4) -> Problem:
    """Return a problem with so many layers and devices at most, the same for the same seed."""
    draw = np.random.default_rng(seed)
    layers, devices = (int(draw.integers(1, most + 1)) for most in (layers, devices))
    kinds, boards = (int(draw.integers(1, devices + 1)) for _ in range(2))
    times = _times(draw, kinds, layers)
    return Problem(
        layers=tuple(f"l{n}" for n in range(layers)),
        devices=tuple(
            Device(f"b{n % boards}_cpu{n}", n % boards, int(draw.integers(kinds)), _cores(draw, n))
            for n in range(devices)
        ),
        boards=tuple(_board(draw, number) for number in range(boards)),
        times_s=times,
        spans_s=summed_spans(times),
        weight_bytes=draw.integers(0, 9, layers),
        tensors=tuple(_tensors(draw, layers)),
        bandwidth_bytes_s=_bandwidths(draw, boards),
        latency_s=np.full((boards, boards), draw.choice([0.0, 0.1])),
        wire_share=_wire_shares(draw, boards),
        together=_together(draw, layers),
        working_bytes=draw.integers(0, 4, layers),
        overheads=OVERHEADS if draw.random() < 0.5 else NO_OVERHEADS,
    )


def _times(draw: np.random.Generator, kinds: int, layers: int) -> np.ndarray:
    """Return times: many alike, some of nothing, or all of them; and some that are infinite."""
    alike = draw.random() < 0.5
    times = draw.integers(0, 4, (kinds, layers)) if alike else draw.random((kinds, layers))
    times = times * draw.choice([0.0, 1.0, 1.0, 3.0], (kinds, 1))
    return np.where(draw.random((kinds, layers)) < draw.choice([0.0, 0.1]), math.inf, times)


def _cores(draw: np.random.Generator, number: int) -> tuple[int, ...]:
    """Return the cores of a device: some want the same one."""
    return (int(draw.integers(3)),) if draw.random() < 0.2 else (10 + number,)


def _board(draw: np.random.Generator, number: int) -> BoardCosts:
    memory = int(draw.integers(10, 60)) if draw.random() < 0.3 else None
    return BoardCosts(f"b{number}", memory, float(draw.integers(3)), float(draw.integers(3, 6)))


def _tensors(draw: np.random.Generator, layers: int) -> list[LayerTensor]:
    """Return a chain's tensors; some skip layers, some have no bytes, some cannot be sent."""

    def nbytes() -> float:
        return float(draw.choice([0.0, math.inf, draw.random(), 5.0], p=[0.2, 0.05, 0.65, 0.1]))

    tensors = [LayerTensor("in", -1, nbytes(), (0,), False)]
    for made in range(layers - 1):
        readers = {made + 1}
        if draw.random() < 0.4:
            readers.add(int(draw.integers(made + 1, layers)))
        is_output = draw.random() < 0.1
        is_float = bool(draw.integers(2))
        ends = (made, nbytes(), tuple(sorted(readers)), is_output)
        tensors.append(LayerTensor(f"t{made}", *ends, is_convertible=is_float))
    return [*tensors, LayerTensor("out", layers - 1, nbytes(), (), True)]


def _bandwidths(draw: np.random.Generator, boards: int) -> np.ndarray:
    rates = draw.choice([0.5, 2.0, 10.0, math.inf], (boards, boards))
    if draw.random() < 0.5:
        rates[:] = rates[0, 0]
    rates = np.minimum(rates, rates.T)
    np.fill_diagonal(rates, math.inf)
    return rates


def _wire_shares(draw: np.random.Generator, boards: int) -> np.ndarray:
    """Return none that are converted, all alike, or some."""
    shares = draw.choice([0.25, 0.5, 1.0], (boards, boards)) ** draw.choice([0, 0, 1])
    shares = np.minimum(shares, shares.T)
    np.fill_diagonal(shares, 1.0)
    return shares


def _together(draw: np.random.Generator, layers: int) -> tuple[tuple[int, ...], ...]:
    if layers < 2 or draw.random() < 0.8:
        return ()
    return (tuple(sorted(map(int, draw.choice(layers, 2, replace=False)))),)
