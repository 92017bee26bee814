"""Which frames a rank handles, and how they follow each other, where ranks take turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_MAX_SHOWN = 8
"""Positions that are named one by one."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The frames whose number, modulo ``period``, is one of ``positions``; by default all."""

    period: int = 1
    positions: tuple[int, ...] = (0,)
    """Ascending, from 0 to ``period - 1``."""

    def __str__(self) -> str:
        """Write ``all``, or ``0, 2 of 3``; of many ``99 of every 100``."""
        if self == ALL:
            return "all"
        if len(self.positions) > _MAX_SHOWN:
            return f"{len(self.positions)} of every {self.period}"
        return f"{', '.join(map(str, self.positions))} of {self.period}"

    @property
    def share(self) -> Fraction:
        return Fraction(len(self.positions), self.period)

    def shared_with(self, other: Turns) -> Fraction:
        common = math.gcd(self.period, other.period)
        pairs = sum((a - b) % common == 0 for a in self.positions for b in other.positions)
        return Fraction(pairs, math.lcm(self.period, other.period))

    @property
    def levels(self) -> int:
        """How many levels of a pipeline a step on such a frame takes.

        A pipeline takes a frame in each step. Who handles a third of the frames may take three
        steps for one, and longer if two of its frames follow each other at once.
        """
        takes = Fraction(1) / self.share
        free, latest = Fraction(0), Fraction(0)
        for frame in (*self.positions, *(self.period + position for position in self.positions)):
            free = max(free, Fraction(frame)) + takes
            latest = max(latest, free - frame)
        return math.ceil(latest)

    def has(self, frame: int) -> bool:
        return frame % self.period in self.positions

    def frame(self, index: int) -> int:
        rounds, position = divmod(index, len(self.positions))
        return rounds * self.period + self.positions[position]

    def common(self, other: Turns) -> Turns:
        """The frames that are handled by both; there may be none."""
        if other.period == 1:
            return self
        period = math.lcm(self.period, other.period)
        theirs = set(other.positions)
        positions = (frame for frame in self._frames(period) if frame % other.period in theirs)
        return Turns(period, tuple(positions))

    def covers(self, other: Turns) -> bool:
        """Tell whether all frames of another are among these."""
        return len(self.common(other).positions) * other.period == (
            len(other.positions) * math.lcm(self.period, other.period)
        )

    def count_in(self, frames: int) -> int:
        """Count those among the first ``frames`` of the stream."""
        rounds, rest = divmod(frames, self.period)
        return rounds * len(self.positions) + sum(position < rest for position in self.positions)

    def most_in(self, frames: int) -> int:
        """Count those at most among so many frames that follow each other."""
        rounds, rest = divmod(frames, self.period)
        within = (
            sum((other - begin) % self.period < rest for other in self.positions)
            for begin in self.positions
        )
        return rounds * len(self.positions) + max(within)

    def steps_in(self, other: Turns) -> Steps:
        """Find which of another's frames they are: all of them are among those."""
        period = math.lcm(self.period, other.period)
        mine = set(self._frames(period))
        indices = [at for at, frame in enumerate(other._frames(period)) if frame in mine]
        length = len(other.positions) * (period // other.period)
        jumps = [0] * length
        for index, following in zip(indices, [*indices[1:], indices[0] + length], strict=True):
            jumps[index] = following - index
        return EACH if set(jumps) == {1} else Steps(indices[0], tuple(jumps))

    def _frames(self, period: int) -> Sequence[int]:
        """List the frames of a period that is a multiple of theirs."""
        return [begin + p for begin in range(0, period, self.period) for p in self.positions]


ALL = Turns()

MAX_TURNS = 100
"""Largest period: so the turns of two groups of ranks have at most 9,900 frames in common."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Which of a ring's frames a reader takes, by their indices in the ring."""

    first: int = 0
    """Index of the first one."""
    jumps: tuple[int, ...] = (1,)
    """By index modulo their number: how much larger the index of the next one is; 0: it takes
    another one."""

    def after(self, index: int) -> int:
        """Index of the frame that is taken after ``index``, one of its own."""
        return index + self.jumps[index % len(self.jumps)]

    def takes(self, index: int) -> bool:
        return self.jumps[index % len(self.jumps)] > 0


EACH = Steps()
