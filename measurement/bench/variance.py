"""Where the variance of the latency comes from: frames, the machine, or starts.

A nested analysis of variance: the frames of a start in order are cut into blocks of time. What
differs between blocks of one start is what the machine did meanwhile (its frequency, other
programs), or what else changes slowly. What differs between starts is what a start settles on
(memory, threads), besides what the machine did between them. Searle, Casella, McCulloch, "Variance
Components" (1992), section 3.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.wording import digits, percent_text

_BLOCKS = 10
"""Of a start."""
_MIN_IN_BLOCK = 5
MIN_FRAMES = 2 * _MIN_IN_BLOCK
_SHUFFLES = 999
_PROBABILITY = 0.05
_EXACT = 0.01
"""Uncertainty of a mean, over the mean, below which nothing has to be done."""
_MAIN_SHARE = 0.5
"""Share from which a level is the main one."""


PLACES = {
    "frames": "between consecutive frames",
    "machine": "between periods of time",
    "starts": "between starts",
}


@dataclass(frozen=True, slots=True)
class VarianceParts:
    """The variance of latencies by level, in squared nanoseconds."""

    frames: float
    """Among the frames of a block."""
    machine: float
    """Among the blocks of a start, and of what goes up or down from start to start."""
    starts: float
    """Among starts."""
    mean_ns: float
    """Of all latencies."""
    frames_in_block: int
    blocks: int
    """Of each start."""
    count: int
    drift_ns: float = 0.0
    """By how much the last start's mean is above the first one's on the straight line through all;
    0: there is no such line, but for chance."""

    @property
    def total(self) -> float:
        """Of a frame of any start."""
        return self.frames + self.machine + self.starts

    def shares(self) -> dict[str, float]:
        """Return the share of the variance by level, from 0 to 1."""
        return _shares({"frames": self.frames, "machine": self.machine, "starts": self.starts})

    def shares_of_mean(self) -> dict[str, float]:
        """Return by level what makes the mean of all frames uncertain, from 0 to 1."""
        return _shares(self._parts_of_mean)

    @property
    def uncertainty(self) -> float:
        """Standard error of the mean, over the mean."""
        return sqrt(sum(self._parts_of_mean.values())) / self.mean_ns if self.mean_ns else 0.0

    @property
    def _parts_of_mean(self) -> dict[str, float]:
        blocks = self.blocks * self.count
        return {
            "frames": self.frames / (blocks * self.frames_in_block),
            "machine": self.machine / blocks,
            "starts": self.starts / self.count,
        }


def _shares(parts: Mapping[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {name: part / total if total else 0.0 for name, part in parts.items()}


def variance_parts(starts: Sequence[NDArray[np.int64]], seed: int = 0) -> VarianceParts | None:
    """Return the variance by level; ``None``: there are too few starts or frames.

    Args:
        starts: latencies of each start in nanoseconds, by frame, the warm-up left out; starts in
            the order of time. Of longer ones the last frames are taken.
        seed: of the shuffles that tell a drift from chance.
    """
    shortest = min(map(len, starts), default=0)
    if len(starts) < 2 or shortest < MIN_FRAMES:
        return None
    blocks = min(_BLOCKS, shortest // _MIN_IN_BLOCK)
    size = shortest // blocks
    values = np.array([latencies[-blocks * size :] for latencies in starts], np.float64)
    values = values.reshape(len(starts), blocks, size)
    by_block, by_start = values.mean(axis=2), values.mean(axis=(1, 2))
    within = values.var(axis=2, ddof=1).mean()
    among_blocks = size * by_block.var(axis=1, ddof=1).mean()
    among_starts = blocks * size * by_start.var(ddof=1)
    machine = max(0.0, (among_blocks - within) / size)
    # Without variance among blocks, both tell that of frames.
    expected = among_blocks if machine else within
    between = max(0.0, (among_starts - expected) / (blocks * size))
    drift_ns, explained = _drift(by_start, np.random.default_rng(seed))
    return VarianceParts(
        frames=float(within),
        machine=float(machine + explained * between),
        starts=float((1 - explained) * between),
        mean_ns=float(values.mean()),
        frames_in_block=size,
        blocks=blocks,
        count=len(starts),
        drift_ns=drift_ns,
    )


def _drift(means: NDArray[np.float64], draw: np.random.Generator) -> tuple[float, float]:
    """Return by how much means rise from the first to the last, and the share of their variance.

    Both are 0 if that may be chance: if five per cent of shuffled means rise or fall as much.
    """
    count = len(means)
    place = np.arange(count) - (count - 1) / 2
    slope = float(place @ means / (place @ place))
    shuffled = draw.permuted(np.tile(means, (_SHUFFLES, 1)), axis=1)
    as_steep = int((np.abs(shuffled @ place) >= abs(place @ means)).sum())
    if (1 + as_steep) / (1 + _SHUFFLES) >= _PROBABILITY or not means.var():
        return 0.0, 0.0
    explained = slope**2 * float(place @ place) / (count * float(means.var()))
    return slope * (count - 1), explained


def explanation(parts: VarianceParts) -> list[str]:
    """Return in sentences where the variance comes from, and what narrows the mean."""
    shares = parts.shares()
    if not parts.total:
        return ["The latencies of all frames are equal."]
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    first, second, third = (f"{percent_text(share)} {PLACES[name]}" for name, share in ordered)
    first = first.replace("%", "% is", 1)
    sentences = [f"Of the variance of the latency, {first}, {second} and {third}."]
    if parts.drift_ns:
        way = "rises" if parts.drift_ns > 0 else "falls"
        sentences.append(
            f"The mean {way} by {digits(1e-6 * abs(parts.drift_ns))} ms from the first start to the"
            " last: the machine changed in the meantime."
        )
    of_mean = parts.shares_of_mean()
    from_starts, from_machine = (percent_text(of_mean[name]) for name in ("starts", "machine"))
    known = f"The mean has a standard error of {100 * parts.uncertainty:.2g} %"
    if parts.uncertainty < _EXACT:
        helps = "neither more frames nor more starts are needed"
    elif of_mean["starts"] >= _MAIN_SHARE:
        helps = (
            f"{from_starts} of that comes from starts: more starts help, more frames of each do not"
        )
    elif of_mean["machine"] >= _MAIN_SHARE:
        helps = (
            f"{from_machine} of that comes from the machine: a quiet machine or longer starts help;"
            " a fixed frequency may"
        )
    else:
        helps = (
            f"{from_starts} of that comes from starts: more frames of each help as much as more"
            " starts, which take longer"
        )
    return [*sentences, f"{known}; {helps}."]
