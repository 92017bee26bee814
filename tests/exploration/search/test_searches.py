"""NSGA-II and exhaustive search where the answer is known; what a mapping is worth."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_problems import platform, problem
from numpy.typing import NDArray

from rankslice.exploration.cost.cost_model import core_groups
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.front import Archive, Scores, nondominated
from rankslice.exploration.search.nsga2 import first_population, nsga2
from rankslice.exploration.search.search_options import GeneticOptions
from rankslice.exploration.search.space import (
    Search,
    SearchSpace,
    coarse_blocks,
    every_mapping,
    exhaustive,
    scorer,
)
from rankslice.exploration.search.variation import mutated, random_slices, swap_stretches
from rankslice.exploration.times.span_times import summed_spans
from rankslice.framework.errors import RankSliceError

WORK = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0])
SPEED = np.array([1.0, 2.0, 4.0])
SPACE = SearchSpace(layers=len(WORK), devices=len(SPEED), objectives=2)


def score(population: NDArray[np.int64]) -> Scores:
    """The slowest device, each cut costing something; and the most layers on one device."""
    loads = np.stack([((population == p) * WORK).sum(axis=1) / s for p, s in enumerate(SPEED)], 1)
    cuts = (population[:, 1:] != population[:, :-1]).sum(axis=1)
    counts = np.stack([(population == device).sum(axis=1) for device in range(len(SPEED))], 1)
    return Scores(
        np.stack([loads.max(axis=1) + cuts, counts.max(axis=1).astype(float)], axis=1),
        np.where((population[:, 0] == 2), 1.0, 0.0),
        (counts > 0).sum(axis=1),
    )


def the_front() -> set[tuple[float, ...]]:
    everything = every_mapping(3, len(WORK), 0, 3 ** len(WORK))
    scores = score(everything)
    values = scores.values[scores.excess <= 0]
    return {tuple(row) for row in values[nondominated(values)]}


def front_of(archive: Archive) -> set[tuple[float, ...]]:
    return {tuple(row) for row in archive.values}


def test_every_mapping_is_made_once() -> None:
    mappings = every_mapping(3, 4, 0, 81)
    assert 81 == len({tuple(row) for row in mappings})
    assert (0, 2) == (mappings.min(), mappings.max())


def test_exhaustive_search_finds_the_whole_front() -> None:
    assert the_front() == front_of(exhaustive(Search(score, SPACE)))


def test_exhaustive_search_tells_how_far_it_is() -> None:
    told: list[int] = []
    exhaustive(Search(score, SPACE), on_mappings=told.append)
    assert 3 ** len(WORK) == told[-1]


def test_exhaustive_search_refuses_what_would_take_too_long() -> None:
    with pytest.raises(RankSliceError) as refused:
        exhaustive(Search(score, replace(SPACE, layers=40, devices=16)), most=1000)
    assert (
        "40 layers on 16 accelerators can be mapped in 10^48 ways,"
        " and --method exhaustive tries at most 1.00 k; use nsga2 or exact"
    ) == str(refused.value)


def test_exhaustive_search_can_keep_blocks_together() -> None:
    blocks = np.array([0, 0, 0, 1, 1, 2, 2])
    archive = exhaustive(Search(score, replace(SPACE, blocks=blocks)))
    assert (np.diff(archive.assignments, axis=1)[:, np.diff(blocks) == 0] == 0).all()


@pytest.fixture
def pymoo() -> None:
    pytest.importorskip("pymoo", reason="pymoo is not installed (extra: explore)")


@pytest.mark.usefixtures("pymoo")
class TestNsga2:
    def test_it_finds_the_front_of_a_small_case(self) -> None:
        archive = nsga2(Search(score, SPACE), GeneticOptions(generations=30))
        assert the_front() == front_of(archive)

    def test_it_finds_the_same_again(self) -> None:
        genetics = GeneticOptions(population=20, generations=5, seed=3)
        first, second = (nsga2(Search(score, SPACE), genetics) for _ in range(2))
        assert first.assignments.tolist() == second.assignments.tolist()

    def test_another_seed_tries_other_mappings(self) -> None:
        met: list[set[bytes]] = []
        for seed in (0, 1):
            tried: set[bytes] = set()

            def watched(population: NDArray[np.int64], tried: set[bytes] = tried) -> Scores:
                tried.update(row.tobytes() for row in population)
                return score(population)

            nsga2(Search(watched, SPACE), GeneticOptions(population=10, generations=3, seed=seed))
            met.append(tried)
        assert met[0] != met[1]

    def test_it_evaluates_a_population_in_each_generation(self) -> None:
        sizes = []

        def counted(population: NDArray[np.int64]) -> Scores:
            sizes.append(len(population))
            return score(population)

        told: list[int] = []
        nsga2(
            Search(counted, SPACE),
            GeneticOptions(population=30, generations=6),
            on_generation=told.append,
        )
        assert [30] * 6 == sizes
        assert [1, 2, 3, 4, 5, 6, 6] == told

    def test_it_is_never_worse_than_what_it_began_with(self) -> None:
        best = exhaustive(Search(score, SPACE))
        fastest = best.assignments[best.values[:, 0].argmin()]
        archive = nsga2(
            Search(score, SPACE), GeneticOptions(population=4, generations=1), fastest[None]
        )
        assert best.values[:, 0].min() == archive.values[:, 0].min()

    def test_impossible_mappings_are_not_among_the_answers(self) -> None:
        archive = nsga2(Search(score, SPACE), GeneticOptions(population=20, generations=10))
        assert (archive.assignments[:, 0] != 2).all()

    def test_moving_blocks_first_finds_the_front_too(self) -> None:
        blocks = coarse_blocks(WORK, np.ones(len(WORK) - 1), 3)
        archive = nsga2(
            Search(score, replace(SPACE, blocks=blocks)), GeneticOptions(generations=40)
        )
        assert the_front() == front_of(archive)

    def test_a_case_with_one_mapping_ends(self) -> None:
        archive = nsga2(
            Search(
                lambda population: Scores(
                    np.ones((len(population), 1)),
                    np.zeros(len(population)),
                    np.ones(len(population), int),
                ),
                SearchSpace(layers=1, devices=1, objectives=1),
            ),
            GeneticOptions(population=4, generations=3),
        )
        assert [[0]] == archive.assignments.tolist()


def test_without_pymoo_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rankslice.exploration.search.pymoo_adapter", raising=False)
    monkeypatch.setitem(sys.modules, "pymoo.algorithms.moo.nsga2", None)
    with pytest.raises(RankSliceError, match=r"pip install 'rankslice\[explore\]'"):
        nsga2(Search(score, SPACE), GeneticOptions(population=4, generations=1))


def test_a_search_begins_with_the_seeds_and_contiguous_slices() -> None:
    seeds = np.array([[2, 1, 2, 1, 2, 1, 2]])
    first = first_population(SPACE, 50, seeds, np.random.default_rng(0))
    assert (50, 7) == first.shape
    assert seeds[0].tolist() in first.tolist()
    changes = (np.diff(first, axis=1) != 0).sum(axis=1)
    assert [0, 1, 2] == sorted({int(n) for n in changes} - {6})


def test_many_seeds_leave_room_for_others() -> None:
    seeds = every_mapping(3, 7, 0, 500)
    first = first_population(SPACE, 20, seeds, np.random.default_rng(0))
    assert 20 == len(first)
    assert seeds[0].tolist() == first[0].tolist()
    known = {row.tobytes() for row in seeds}
    assert 10 <= sum(row.tobytes() in known for row in first) < 20


def test_slices_are_on_devices_of_their_own() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        row = random_slices(SearchSpace(9, 4, 1), random)
        assert len(np.unique(row)) == 1 + (np.diff(row) != 0).sum()


def test_children_swap_one_stretch_of_layers() -> None:
    parents = np.stack([np.zeros((100, 9), int), np.ones((100, 9), int)])
    first, second = swap_stretches(parents, np.random.default_rng(0))
    assert (first + second == 1).all()
    assert {0, 1, 2} == set((np.diff(first, axis=1) != 0).sum(axis=1).tolist())


def test_every_mutation_gives_a_mapping() -> None:
    random = np.random.default_rng(0)
    population = random.integers(0, 3, (2000, 8))
    before = population.copy()
    children = mutated(population, 3, random)
    assert (before == population).all()
    assert (2000, 8) == children.shape
    assert 0 <= children.min() <= children.max() < 3
    assert (children != population).any(axis=1).mean() > 0.6


def test_blocks_have_about_the_same_work() -> None:
    blocks = coarse_blocks(np.ones(100), np.ones(99), 10)
    assert list(range(10)) == np.unique(blocks).tolist()
    counts = np.bincount(blocks)
    assert counts.max() <= 2 * counts.min() + 1


def test_borders_of_blocks_are_where_little_crosses() -> None:
    crossing = np.full(99, 1000.0)
    crossing[[21, 47, 76]] = 1.0
    borders = np.flatnonzero(np.diff(coarse_blocks(np.ones(100), crossing, 4)))
    assert [21, 47, 76] == borders.tolist()


def test_there_are_no_more_blocks_than_layers() -> None:
    assert [0, 1, 2] == coarse_blocks(np.ones(3), np.ones(2), 50).tolist()


CPU_1, GPU_1, CPU_2, GPU_2 = range(4)


def test_ranks_cannot_have_the_same_cores(tmp_path: Path) -> None:
    whole = problem(tmp_path, platform(1))
    shared = replace(whole.devices[0], key="b1_cpu0")
    crowded = replace(whole, devices=(*whole.devices, replace(shared, cores=(0,))))
    assert {(0, 2): (0, 0)} == core_groups(crowded)
    scores = scorer(crowded, ("throughput",))(np.array([[0] * 6, [0] * 3 + [2] * 3]))
    assert [0.0, 1.0] == scores.excess.tolist()


def test_layers_that_cannot_run_are_counted(tmp_path: Path) -> None:
    whole = problem(tmp_path, platform(1))
    times = whole.times_s.copy()
    times[1, 2:4] = np.inf
    picky = replace(whole, times_s=times, spans_s=summed_spans(times))
    scores = scorer(picky, ("throughput",))(np.array([[1] * 6, [1, 1, 0, 0, 1, 1]]))
    assert [2.0, 0.0] == scores.excess.tolist()


def test_what_does_not_fit_is_impossible(tmp_path: Path) -> None:
    tight = problem(tmp_path, platform(1, memory_mb=1e-4))
    assert (scorer(tight, ("throughput",))(np.array([[0] * 6])).excess > 0).all()


def test_boards_in_use_are_counted(two_boards: Problem) -> None:
    rows = np.array([[CPU_1] * 6, [CPU_1, GPU_1] * 3, [CPU_1, GPU_2] * 3])
    assert [1, 1, 2] == scorer(two_boards, ("throughput",))(rows).groups.tolist()
