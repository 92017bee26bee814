"""Measuring the slices of the best plan until its times are true.

The spans that a planner chooses are those whose times were guessed too low. So :func:`refine` has
them measured and plans again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rankslice.exploration.times.span_times import MeasuredTimes, Slice


@dataclass(frozen=True, slots=True)
class Round:
    """A plan, what its slices were expected to take, and what they took."""

    slices: tuple[Slice, ...]
    expected_s: tuple[float, ...]
    measured_s: tuple[float, ...]

    @property
    def error(self) -> float:
        """Largest difference, as a share of the slice's time.

        Slices of less than a tenth of the longest one count as if they took that tenth.
        """
        longest = max(self.measured_s)
        return max(
            0.0
            if expected == measured  # both may be infinite
            else abs(expected - measured) / max(measured, longest / 10)
            if np.isfinite(measured)
            else float("inf")
            for expected, measured in zip(self.expected_s, self.measured_s, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Refinement:
    """How a plan was found whose times are true, or how far they still are off."""

    times: MeasuredTimes
    """With all that was measured."""
    rounds: tuple[Round, ...]
    within: float

    @property
    def reached(self) -> bool:
        """Whether the last plan's times were true. There is none if nothing can be planned."""
        return bool(self.rounds) and self.rounds[-1].error <= self.within


def refine(
    times: MeasuredTimes,
    plan: Callable[[MeasuredTimes], Sequence[Slice]],
    measure: Callable[[Sequence[Slice]], Sequence[float]],
    *,
    within: float = 0.05,
    most_rounds: int = 12,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Refinement:
    """Plan, have the plan's slices measured, and plan again, until expectations are met.

    Args:
        plan: returns the slices of the best plan, given times; none if there is no plan.
        measure: returns what slices take now, in seconds; inf for one that cannot run.
        may_go_on: called before each round; ends the refinement if false.
    """
    rounds: list[Round] = []
    while len(rounds) < most_rounds and may_go_on():
        slices = tuple(plan(times))
        if not slices:
            break
        expected = tuple(times.span_s(*part) for part in slices)
        measured = tuple(measure(slices))
        rounds.append(Round(slices, expected, measured))
        times = times.with_measured(dict(zip(slices, measured, strict=True)))
        if rounds[-1].error <= within:
            break
    return Refinement(times, tuple(rounds), within)
