"""Times of spans of layers: which spans to measure, and estimates for all others.

Engines merge layers and change the layout of tensors, so a slice takes less than its layers one
by one, and a cut costs something on both of its sides. A few hundred spans are measured. The
others follow from a model of three terms per layer: what it takes within a slice, what it takes to
begin a slice with it, and what it takes to end one. The terms are fitted to what was measured,
long spans trusted more than short ones, whose weights stay in the caches.

The speed of a machine varies, and every planner would avoid a span that was measured at a slow
moment. So long spans are measured at several moments. Where these agree, the measured time counts;
where they differ, it is drawn towards the estimate of the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.profile import ProfiledKind

_CUTS = 16
"""Cuts, spread over the model, at which all layers before and all layers after are measured."""

_LONG_NOISE = 0.02
_SHORT_NOISE = 0.2
"""By how much a measured time may be off the model of three terms, as shares: of long spans, and
added to it, of single layers."""

_MIN_NOISE_S = 2e-6
_DOUBT = 0.5
"""By how much a layer's terms may be off the first guess, as a share of the layer's time."""

_MOMENTS_WANTED = 3
"""Long spans that were measured at two or more moments before their noise is taken as known."""

_MEDIAN_STEP = 0.954
"""Median difference of two normally distributed values, in standard deviations."""

_LONG_SHARE = 8
"""A span is long if it has at least one layer in so many."""

_SINGLE_FIRST = 4
"""Spans of at least so many layers are measured before single layers."""

_MIN_S = 1e-7
"""No span is estimated to take less."""

Span = tuple[int, int]
"""First and last layer, included."""


class Slice(NamedTuple):
    """A span on a kind of accelerator."""

    kind: int
    first: int
    last: int

    @property
    def span(self) -> Span:
        return self.first, self.last


def first_spans(layers: int, cuts: int = _CUTS) -> tuple[Span, ...]:
    """Return the spans to measure before anything is known, each once, the most telling first.

    First comes the whole model; then, for ``cuts`` cuts spread over it, all layers before and all
    after, those in the middle first; then spans of ..., 16, 8, 4 layers side by side, all single
    layers, and all pairs. There are about 2.5 spans a layer. A frame passes each layer about
    ``log2(layers) + cuts`` times.
    """
    spans: dict[Span, None] = {(0, layers - 1): None}
    for number in _halving(cuts):
        cut = round(number * layers / (cuts + 1))
        if 0 < cut < layers:
            spans |= {(0, cut - 1): None, (cut, layers - 1): None}
    sizes = [1 << power for power in range(layers.bit_length()) if 1 << power < layers]
    long = [size for size in reversed(sizes) if size >= _SINGLE_FIRST]
    for size in (*long, *(size for size in sizes if size < _SINGLE_FIRST)):
        step = 1 if size <= 2 else size
        spans |= {(begin, begin + size - 1): None for begin in range(0, layers - size + 1, step)}
    return tuple(spans)


def _halving(count: int) -> list[int]:
    """Return the numbers from 1 to ``count``, so that those so far are always spread over all."""
    digits = count.bit_length()
    order = sorted(range(1 << digits), key=lambda number: f"{number:0{digits}b}"[::-1])
    return [number for number in order if 1 <= number <= count]


def is_long(span: Span, layers: int) -> bool:
    """Return whether a planner may choose a span as a slice of its own."""
    return (span[1] - span[0] + 1) * _LONG_SHARE >= layers


class KindTimes:
    """Times of all spans on one kind of accelerator, measured or estimated."""

    def __init__(
        self,
        layers: int,
        measured_s: Mapping[Span, float],
        refused: Collection[Span] = (),
        *,
        moments: Mapping[Span, int] | None = None,
        noise: float = 0.0,
    ) -> None:
        """Take what was measured.

        Args:
            measured_s: seconds by span.
            refused: spans that the accelerator cannot run. A layer that it cannot run alone makes
                every span with it impossible, unless one with it ran.
            moments: at how many moments a span was measured, if not at one.
            noise: how far what is measured at one moment is off, as a share; 0: not known.
        """
        self.layers = layers
        self.measured_s = dict(measured_s)
        self.refused = frozenset(refused)
        self.moments = dict(moments or {})
        self.noise = noise
        self._layer_s, self._begin_s, self._end_s, self._true_s = self._fit()

    def with_measured(
        self, measured_s: Mapping[Span, float], refused: Collection[Span]
    ) -> KindTimes:
        """Return these times with more that was measured.

        It counts as one more moment; where noise is not known, it replaces older figures.
        """
        gone = (self.refused - measured_s.keys()) | frozenset(refused)
        known = {span: seconds for span, seconds in self.measured_s.items() if span not in gone}
        moments = dict(self.moments)
        for span, seconds in measured_s.items():
            count = moments.get(span, 1) if span in known and self.noise else 0
            known[span] = (count * known.get(span, 0.0) + seconds) / (count + 1)
            moments[span] = count + 1
        return KindTimes(self.layers, known, gone, moments=moments, noise=self.noise)

    @property
    def layer_s(self) -> NDArray[np.float64]:
        """(layers,): what each layer takes within a slice, in seconds; inf where it cannot run."""
        return np.where(self._cannot_run, np.inf, np.maximum(self._layer_s, 0.0))

    def span_s(self, first: int, last: int) -> float:
        return float(self.table[first, last])

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """(layers, layers), by first and last layer, in seconds; inf for what cannot run."""
        sums = np.concatenate([[0.0], np.cumsum(self._layer_s)])
        table: NDArray[np.float64] = sums[np.newaxis, 1:] - sums[:-1, np.newaxis]
        table = table + self._begin_s[:, np.newaxis] + self._end_s[np.newaxis, :]
        np.maximum(table, _MIN_S, out=table)
        gone = np.concatenate([[0], np.cumsum(self._cannot_run)])
        table[gone[np.newaxis, 1:] > gone[:-1, np.newaxis]] = np.inf
        for span, seconds in self._true_s.items():
            table[span] = seconds
        for span in self.refused:
            table[span] = np.inf
        table[np.tri(self.layers, k=-1, dtype=bool)] = np.inf
        table.flags.writeable = False
        return table

    @cached_property
    def _cannot_run(self) -> NDArray[np.bool_]:
        """(layers,): whether a layer was refused alone and in every span that was measured."""
        ran = np.zeros(self.layers + 1, np.int64)
        for first, last in self.measured_s:
            ran[first] += 1
            ran[last + 1] -= 1
        refused = np.array([(n, n) in self.refused for n in range(self.layers)], bool)
        cannot: NDArray[np.bool_] = refused & (np.cumsum(ran)[:-1] == 0)
        return cannot

    def _fit(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], dict[Span, float]]:
        """Return the three terms of each layer, and what measured spans take: the most likely.

        All terms are normally distributed around the first guess; so is what a span takes around
        their sum, and what was measured around what it takes. So the answer is a linear system
        with a row for each measured span.
        """
        layer, begin, end = self._first_guess()
        if not self.measured_s:
            return layer, begin, end, {}
        spans = np.array(list(self.measured_s), np.int64)
        first, last = spans[:, 0], spans[:, 1]
        seconds = np.array(list(self.measured_s.values()))
        doubt = (_DOUBT * self._layer_scale()) ** 2
        sums, doubts = (np.concatenate([[0.0], np.cumsum(terms)]) for terms in (layer, doubt))
        off = seconds - (sums[last + 1] - sums[first] + begin[first] + end[last])
        common = doubts[np.minimum.outer(last, last) + 1] - doubts[np.maximum.outer(first, first)]
        matrix = np.maximum(common, 0.0)
        matrix += np.equal.outer(first, first) * doubt[first]
        matrix += np.equal.outer(last, last) * doubt[last]
        share = _LONG_NOISE + _SHORT_NOISE / (last - first + 1)
        counts = np.array([self.moments.get(span, 1) for span in self.measured_s])
        at_moments = (self.noise * seconds) ** 2 / counts
        matrix[np.diag_indices(len(spans))] += (share * seconds + _MIN_NOISE_S) ** 2 + at_moments
        weights = np.linalg.solve(matrix, off)
        true_s = np.maximum(seconds - at_moments * weights, _MIN_S)
        steps = np.zeros(self.layers + 1)
        np.add.at(steps, first, weights)
        np.add.at(steps, last + 1, -weights)
        return (
            layer + doubt * np.cumsum(steps)[:-1],
            begin + doubt * np.bincount(first, weights, self.layers),
            end + doubt * np.bincount(last, weights, self.layers),
            dict(zip(self.measured_s, map(float, true_s), strict=True)),
        )

    def _layer_scale(self) -> NDArray[np.float64]:
        """Return about what each layer takes, above zero, (layers,) in seconds."""
        alone = np.array([self.measured_s.get((n, n), np.nan) for n in range(self.layers)])
        known = alone[np.isfinite(alone)]
        usual = float(np.mean(known)) if len(known) else self._mean_s()
        return np.maximum(np.where(np.isfinite(alone), alone, usual), usual / 100)

    def _mean_s(self) -> float:
        shares = [s / (last - first + 1) for (first, last), s in self.measured_s.items()]
        return float(np.mean(shares)) if shares else _MIN_S

    def _first_guess(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return terms that make single layers and pairs take what was measured.

        What two layers take less together than alone is what a cut between them costs, one half
        on each side.
        """
        alone = np.array([self.measured_s.get((n, n), np.nan) for n in range(self.layers)])
        pairs = [self.measured_s.get((n, n + 1), np.nan) for n in range(self.layers - 1)]
        cut = np.nan_to_num(alone[:-1] + alone[1:] - np.array(pairs, np.float64))
        limit = np.nan_to_num(np.minimum(alone[:-1], alone[1:]))
        cut = np.clip(cut, 0.0, limit)
        usual = float(np.min(cut)) if len(cut) else 0.0
        begin = np.concatenate([[usual / 2], cut / 2])
        end = np.concatenate([cut / 2, [usual / 2]])
        scale = self._layer_scale()
        return np.where(np.isfinite(alone), alone - begin - end, scale), begin, end


class MeasuredTimes:
    """Times of all spans on all kinds."""

    def __init__(self, kinds: Sequence[KindTimes]) -> None:
        self.kinds = tuple(kinds)

    @property
    def times_s(self) -> NDArray[np.float64]:
        """(kinds, layers): what each layer takes within a slice, in seconds."""
        return np.stack([kind.layer_s for kind in self.kinds])

    def span_s(self, kind: int, first: int, last: int) -> float:
        return self.kinds[kind].span_s(first, last)

    @property
    def spans_s(self) -> NDArray[np.float64]:
        """(kinds, layers, layers): all of them, by first and last layer, in seconds."""
        return np.stack([kind.table for kind in self.kinds])

    def with_measured(self, measured: Mapping[Slice, float]) -> MeasuredTimes:
        """Return these times with more that was measured; inf: the accelerator cannot run it."""
        kinds = list(self.kinds)
        for number, kind in enumerate(kinds):
            own = {s.span: seconds for s, seconds in measured.items() if s.kind == number}
            ran = {span: seconds for span, seconds in own.items() if np.isfinite(seconds)}
            if own:
                kinds[number] = kind.with_measured(ran, own.keys() - ran.keys())
        return MeasuredTimes(kinds)


def kind_times(kind: ProfiledKind, layers: int) -> KindTimes:
    ran = {(span.first, span.last): span for span in kind.spans if span.samples_ns}
    return KindTimes(
        layers,
        {key: span.seconds for key, span in ran.items() if span.seconds is not None},
        {(span.first, span.last) for span in kind.spans if span.refused},
        moments={key: len(span.moments) for key, span in ran.items()},
        noise=_noise(span.moments_s for key, span in ran.items() if is_long(key, layers)),
    )


def _noise(spans: Iterable[Sequence[float]]) -> float:
    """Return how far what was measured at one moment is off, as a share; 0: not known.

    Args:
        spans: of each span, what was measured at each moment, in seconds.
    """
    steps = [np.abs(np.diff(np.log(moments))) for moments in spans if len(moments) > 1]
    if len(steps) < _MOMENTS_WANTED:
        return 0.0
    # The median ignores single moments at which other programs ran.
    return float(np.median(np.concatenate(steps))) / _MEDIAN_STEP


def summed_spans(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (kinds, layers, layers): the sum over each span, by its first and last layer.

    Entries with the last layer before the first mean nothing.

    Args:
        times_s: (kinds, layers), in seconds; inf where a kind cannot run a layer, and so no span
            with it.
    """
    can_run = np.isfinite(times_s)
    sums, refused = (
        np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))
        for values in (np.where(can_run, times_s, 0.0), ~can_run)
    )
    spans: NDArray[np.float64] = sums[:, np.newaxis, 1:] - sums[:, :-1, np.newaxis]
    spans[refused[:, np.newaxis, 1:] > refused[:, :-1, np.newaxis]] = np.inf
    return spans


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

    The spans that a planner chooses are those whose times were guessed too low.

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
