"""Spans that are measured, those that are estimated, and plans whose times come true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from rankslice.exploration.times.span_times import (
    KindTimes,
    MeasuredTimes,
    Slice,
    Span,
    first_spans,
    is_long,
    kind_times,
    refine,
)
from rankslice.framework.profile import Core, MeasuredBoard, ProfiledKind, Span as Measured

Table = NDArray[np.float64]
BOARD = MeasuredBoard("b", "b", "x86_64", "", "3.11", 1, (Core(0, None, None),), None, None)
KIND = ProfiledKind("b_cpu0", ("b_cpu0",), "cpu", 1, "null", "1", (), (), False, (), 0, BOARD, ())


def additive(seconds: Sequence[float]) -> Table:
    """Return the table of spans that take as long as their layers."""
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    return np.asarray(sums[np.newaxis, 1:] - sums[:-1, np.newaxis])


def fused(layers: int, seed: int) -> Table:
    """Return the table of an engine that merges groups of layers, has to convert tensors at cuts,
    and whose caches hold the weights of short spans."""
    random = np.random.default_rng(seed)
    heavy = random.lognormal(0, 1, layers) * 1e-3
    group = np.cumsum(random.random(layers) < 0.4)  # those of a group are merged
    convert = random.lognormal(0, 1, layers + 1) * 2e-4
    table = np.full((layers, layers), np.inf)
    for first in range(layers):
        for last in range(first, layers):
            size = last - first + 1
            inside = heavy[first : last + 1]
            numbers = group[first : last + 1]
            followers = np.concatenate([[False], numbers[1:] == numbers[:-1]])
            seconds = inside[~followers].sum() + 0.3 * inside[followers].sum()
            cache = 0.75 + 0.25 * min(1.0, size / 12)
            table[first, last] = seconds * cache + convert[first] + convert[last + 1] + 2e-5
    return table


def measured(table: Table, spans: Sequence[Span]) -> KindTimes:
    return KindTimes(len(table), {span: float(table[span]) for span in spans})


def balanced_on(table: Table, stages: int) -> list[Slice]:
    """Return the best way to cut layers into slices, all on kind 0."""
    slowest = table[0].copy()
    cuts: list[NDArray[np.int64]] = []
    for _ in range(stages - 1):
        choices = np.full_like(table, np.inf)
        choices[:-1] = np.maximum(slowest[:-1, np.newaxis], table[1:])
        cuts.append(choices.argmin(axis=0))
        slowest = choices.min(axis=0)
    last, found = len(table) - 1, []
    for cut in reversed(cuts):
        found.append(Slice(0, int(cut[last]) + 1, last))
        last = int(cut[last])
    return [Slice(0, 0, last), *reversed(found)]


def balanced(stages: int) -> Callable[[MeasuredTimes], Sequence[Slice]]:
    return lambda times: balanced_on(times.spans_s[0], stages)


@pytest.mark.parametrize("layers", [1, 2, 3, 5, 64, 176])
def test_the_first_spans_have_each_layer_each_pair_and_the_whole(layers: int) -> None:
    spans = first_spans(layers)
    assert len(spans) == len(set(spans))
    wanted = {(n, n) for n in range(layers)} | {(n, n + 1) for n in range(layers - 1)}
    assert wanted | {(0, layers - 1)} <= set(spans)
    assert all(0 <= first <= last < layers for first, last in spans)


def test_the_first_spans_are_few() -> None:
    assert 2.6 * 910 > len(first_spans(910))


def test_what_was_measured_counts_as_it_was_measured() -> None:
    times = KindTimes(3, {(0, 0): 1.0, (1, 1): 2.0, (2, 2): 3.0, (0, 2): 1.5})
    assert 1.5 == times.span_s(0, 2)
    assert 2.0 == times.span_s(1, 1)


def test_a_model_without_merging_is_estimated_as_the_sum_of_its_layers() -> None:
    table = additive(np.random.default_rng(0).lognormal(0, 1, 40) * 1e-3)
    estimated = measured(table, first_spans(40)).table
    inside = np.triu_indices(40)
    assert 0.02 > np.max(np.abs(estimated[inside] / table[inside] - 1))


@pytest.mark.parametrize("seed", range(3))
def test_spans_that_were_not_measured_are_estimated_much_better_than_by_sums(seed: int) -> None:
    table = fused(60, seed)
    long = [(i, j) for i in range(60) for j in range(i + 10, 60)]
    estimated = measured(table, first_spans(60)).table
    sums = additive(np.diag(table))

    def error(estimate: Table) -> float:
        return float(np.mean([abs(estimate[span] / table[span] - 1) for span in long]))

    assert 0.05 > error(estimated)
    assert error(sums) > 4 * error(estimated)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stages", [2, 4, 7])
def test_refining_reaches_a_plan_whose_times_are_true(seed: int, stages: int) -> None:
    table = fused(60, seed)
    times = MeasuredTimes([measured(table, first_spans(60))])
    refinement = refine(times, balanced(stages), lambda s: [float(table[each.span]) for each in s])
    assert refinement.reached
    assert 0.05 >= refinement.rounds[-1].error
    slowest = max(table[each.span] for each in balanced_on(table, stages))
    assert 1.05 * slowest >= max(refinement.rounds[-1].measured_s)


def test_refining_with_noise_of_two_per_cent_ends() -> None:
    table, random = fused(60, 1), np.random.default_rng(0)

    def measure(slices: Sequence[Slice]) -> list[float]:
        return [float(table[each.span] * random.normal(1, 0.02)) for each in slices]

    assert refine(MeasuredTimes([measured(table, first_spans(60))]), balanced(3), measure).reached


def test_refining_gives_up_after_some_rounds_and_says_so() -> None:
    random = np.random.default_rng(0)
    refinement = refine(
        MeasuredTimes([KindTimes(4, {(0, 3): 1.0})]),
        balanced(2),
        lambda slices: [float(random.uniform(1, 10)) for _ in slices],
        most_rounds=3,
        within=0.001,
    )
    assert (3, False) == (len(refinement.rounds), refinement.reached)


def test_nothing_is_measured_if_nothing_can_be_planned() -> None:
    refinement = refine(MeasuredTimes([KindTimes(2, {})]), lambda times: [], lambda slices: [])
    assert ((), False) == (refinement.rounds, refinement.reached)


def test_a_layer_that_is_refused_makes_every_span_with_it_impossible() -> None:
    times = KindTimes(3, {(0, 0): 1.0, (2, 2): 1.0}, {(1, 1)})
    assert [[1.0, np.inf, np.inf], [np.inf, np.inf], [1.0]] == [
        list(times.table[first, first:]) for first in range(3)
    ]
    assert np.isinf(times.layer_s[1])


def test_a_layer_that_is_refused_alone_and_runs_in_company_makes_nothing_else_impossible() -> None:
    times = KindTimes(3, {(0, 0): 1.0, (2, 2): 1.0, (0, 1): 1.5}, {(1, 1)})
    assert np.isinf(times.span_s(1, 1))
    assert np.isfinite(times.span_s(1, 2))


def test_a_slice_that_cannot_run_after_all_is_planned_no_more() -> None:
    table = additive([1.0, 1.0, 1.0, 1.0])
    table[0, 1] = np.inf
    known = KindTimes(4, {(0, 3): 4.0, (0, 0): 1.0, (1, 1): 1.0, (2, 2): 1.0, (3, 3): 1.0})
    refinement = refine(
        MeasuredTimes([known]), balanced(2), lambda s: [float(table[each.span]) for each in s]
    )
    assert refinement.reached
    assert (0, 1) not in [each.span for each in refinement.rounds[-1].slices]


def test_kinds_are_asked_by_their_numbers() -> None:
    times = MeasuredTimes([KindTimes(1, {(0, 0): 1.0}), KindTimes(1, {(0, 0): 2.0})])
    assert [1.0, 2.0] == [times.span_s(kind, 0, 0) for kind in range(2)]
    assert (2, 1) == times.times_s.shape
    assert 5.0 == times.with_measured({Slice(1, 0, 0): 5.0}).span_s(1, 0, 0)


@pytest.mark.parametrize("count", [1, 5, 16])
def test_when_time_is_short_cuts_are_spread_over_the_model_from_the_beginning(count: int) -> None:
    begun = first_spans(170)[: 1 + 2 * count]
    cuts = sorted(last + 1 for first, last in begun if first == 0 and last < 169)
    assert count == len(cuts)
    assert max(np.diff([0, *cuts, 170])) <= 2 * 170 / (count + 1) + 1


def test_long_spans_have_an_eighth_of_the_layers() -> None:
    assert [False, True] == [is_long((0, last), 80) for last in (8, 9)]


def test_a_span_that_was_measured_at_a_bad_moment_is_drawn_towards_its_layers() -> None:
    table = additive([1e-3] * 20)
    known = {span: float(table[span]) for span in first_spans(20)}
    known[0, 8] *= 1.3
    trusting, doubting = (
        KindTimes(20, known, noise=noise, moments=dict.fromkeys(known, 2)).span_s(0, 8)
        for noise in (0.0, 0.1)
    )
    assert trusting == pytest.approx(11.7e-3)
    assert 9e-3 < doubting < 10e-3


def test_a_span_counts_the_more_the_more_often_it_was_measured() -> None:
    table = additive([1e-3] * 20)
    known = {span: float(table[span]) for span in first_spans(20)}
    known[0, 9] = 12e-3
    found = [
        KindTimes(20, known, noise=0.05, moments={(0, 9): count}).span_s(0, 9)
        for count in (1, 4, 100)
    ]
    assert 10e-3 < found[0] < found[1] < found[2] < 12e-3


def test_the_noise_of_a_kind_is_what_moments_differ_by() -> None:
    random = np.random.default_rng(0)
    spans = [
        Measured(n, n + 4, tuple(samples), (1, 1, 1), None, None, None, False)
        for n in range(15)
        for samples in [[round(each) for each in 1e7 * random.normal(1, 0.06, 3)]]
    ]
    assert 0.04 < kind_times(replace(KIND, spans=tuple(spans)), 20).noise < 0.08
    once = [replace(span, moments=(3,)) for span in spans]
    assert 0.0 == kind_times(replace(KIND, spans=tuple(once)), 20).noise


def test_a_new_measurement_is_one_more_moment_where_noise_is_known() -> None:
    noisy = KindTimes(1, {(0, 0): 4.0}, moments={(0, 0): 3}, noise=0.1)
    assert 5.0 == noisy.with_measured({(0, 0): 8.0}, ()).measured_s[0, 0]
    assert 8.0 == KindTimes(1, {(0, 0): 4.0}).with_measured({(0, 0): 8.0}, ()).measured_s[0, 0]


def test_nothing_is_planned_when_time_is_up() -> None:
    times = MeasuredTimes([KindTimes(4, {(0, 3): 1.0})])
    refinement = refine(
        times, balanced(2), lambda slices: [1.0] * len(slices), may_go_on=lambda: False
    )
    assert ((), False) == (refinement.rounds, refinement.reached)
