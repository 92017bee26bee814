"""The front that is kept while a search goes on."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from rankslice.exploration.results.front import Archive, Scores, nondominated, spread_out


def dominated(row: NDArray[np.float64], by: NDArray[np.float64]) -> bool:
    return bool((by <= row).all() and (by < row).any())


def test_rows_that_another_one_beats_are_not_on_the_front() -> None:
    values = np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [3.0, 1.0], [1.0, 4.0]])
    assert [0, 1, 3] == nondominated(values).tolist()


def test_of_equal_rows_one_is_kept() -> None:
    assert [0] == nondominated(np.ones((3, 2))).tolist()


def test_nothing_has_an_empty_front() -> None:
    assert [] == nondominated(np.empty((0, 2))).tolist()


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_front_is_the_one_that_comparing_each_with_each_gives(objectives: int) -> None:
    random = np.random.default_rng(objectives)
    values = random.integers(0, 6, (80, objectives)).astype(float)
    values = np.unique(values, axis=0)
    expected = [n for n, row in enumerate(values) if not any(dominated(row, by) for by in values)]
    assert expected == nondominated(values).tolist()


def archive_of(values: NDArray[np.float64], groups: NDArray[np.int64], pieces: int) -> Archive:
    archive = Archive(layers=1, objectives=values.shape[1])
    rows = np.arange(len(values))[:, None]
    for piece in np.array_split(np.arange(len(values)), pieces):
        archive.add(rows[piece], Scores(values[piece], np.zeros(len(piece)), groups[piece]))
    return archive


@pytest.mark.parametrize("pieces", [1, 7, 60])
def test_an_archive_has_the_front_of_all_that_was_added(pieces: int) -> None:
    random = np.random.default_rng(pieces)
    values = np.unique(random.integers(0, 8, (200, 3)).astype(float), axis=0)
    values = random.permutation(values)
    archive = archive_of(values, np.zeros(len(values), np.int64), pieces)
    assert set(nondominated(values)) == set(archive.assignments[:, 0])
    assert (values[archive.assignments[:, 0]] == archive.values).all()


def test_what_cannot_be_is_not_kept() -> None:
    archive = archive_of(np.array([[np.inf, 1.0], [np.nan, 0.0]]), np.zeros(2, np.int64), 1)
    assert 0 == len(archive.values)
    assert () == archive.groups


def test_the_best_of_a_group_is_kept_though_another_group_beats_it() -> None:
    values = np.array([[5.0, 5.0], [1.0, 1.0], [4.0, 6.0]])
    archive = archive_of(values, np.array([1, 2, 1]), 3)
    assert (1, 2) == archive.groups
    found = [archive.best(1, objective) for objective in (0, 1)]
    assert [[2], [0]] == [row.tolist() for row in found if row is not None]
    assert archive.best(3, 0) is None


def test_of_a_group_s_equally_fast_mappings_the_one_better_otherwise_is_kept() -> None:
    archive = archive_of(np.array([[1.0, 9.0], [1.0, 2.0]]), np.array([1, 1]), 1)
    best = archive.best(1, 0)
    assert best is not None
    assert [1] == best.tolist()


def test_few_rows_show_both_ends_of_a_front() -> None:
    values = np.array([[n, 100 - n] for n in range(101)], float)
    chosen = spread_out(values, 5)
    assert [0, 25, 50, 75, 100] == chosen.tolist()


def test_a_short_front_is_shown_whole() -> None:
    assert [0, 1] == spread_out(np.array([[1.0, 2.0], [2.0, 1.0]]), 5).tolist()
