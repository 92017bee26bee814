"""Jobs with two routes inside one process: the route changes at random frames."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from in_process import run_in_process
from jobs import FIGURE_2_RANKS, FIRST_CORE, figure_2, unsliced_outputs
from strategies import Network, assignments, networks, pairs_of

from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline import setup
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sources.switching import Change, Observation
from rankslice.framework.reading.read_driver import read_driver
from rankslice.session.building.build import BuildOptions, build


class AtRandom:
    """Changes the route before one of four frames."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._decided = -1

    def decide(self, route: int, seen: Observation) -> tuple[int, str]:
        if seen.arrived == self._decided:
            return route, ""
        self._decided = seen.arrived
        return (1 - route if self._random.random() < 0.25 else route), "by chance"


def write_mapping(path: Path, ranks: Mapping[str, int], first: int, turns: int) -> Path:
    """Write a mapping whose rank n is the n-th from ``first``; the last entry has several."""
    keys = [f"local_cpu{FIRST_CORE}.{first + rank}" for rank in range(max(ranks.values()) + turns)]
    parts = [*keys[: max(ranks.values())], "|".join(keys[max(ranks.values()) :])]
    mapping: dict[str, list[str]] = {key: [] for key in parts}
    for layer, rank in ranks.items():
        mapping[parts[rank]].append(layer)
    path.write_text(json.dumps(mapping))
    return path


def build_routed(
    folder: Path,
    model: onnx.ModelProto,
    usual: Mapping[str, int],
    surge: Mapping[str, int],
    *,
    apart: bool = True,
    turns: tuple[int, int] = (1, 1),
) -> Path:
    """Build a job with two routes, whose ranks are others on each, or the same as far as can be.

    ``turns``: how many ranks take turns in the last part of each route.
    """
    onnx.save(model, folder / "model.onnx")
    first = max(usual.values()) + turns[0] + 2 if apart else 2
    normal = write_mapping(folder / "normal.json", usual, 2, turns[0])
    other = write_mapping(folder / "surge.json", surge, first, turns[1])
    options = BuildOptions(share_cores=True, surge=other)
    return build(folder / "model.onnx", normal, "local", folder / "out", options).folder


def check_routed(data: st.DataObject, network: Network, frames: int) -> None:
    """Check that frames on random routes are computed as by the unsliced network, in order."""
    usual, surge = (data.draw(assignments(network.graph(), 3)) for _ in range(2))
    window = data.draw(st.one_of(st.none(), st.integers(1, 6)))
    seed, apart = data.draw(st.integers(0, 99)), data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "make_switching", lambda *_, **__: AtRandom(seed))
        folder = build_routed(
            *(Path(temporary), network.model(), usual, surge),
            apart=apart,
            turns=data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        )
        ranks = len(read_driver(folder / "driver.py").ranks)
        options = RunOptions(
            results=folder / "results.bin", exact=True, frames=frames, window=window
        )
        records = run_in_process(folder, options, direct=data.draw(pairs_of(ranks)))
        check_results(folder, frames)
        routes = [change.route for change in changes_of(records)]
        assert len(routes) > 1
        assert all(one != other for one, other in itertools.pairwise(routes))


def check_results(folder: Path, frames: int) -> None:
    results = read_results(folder / "results.bin")
    assert list(range(frames)) == results.records["frame"].tolist()
    for output, values in enumerate(unsliced_outputs(folder, ["random"], frames)):
        np.testing.assert_array_equal(values, results.values(output))


def changes_of(records: Sequence[RankFigures]) -> tuple[Change, ...]:
    """Return the changes of the route that the source tells of."""
    (changes,) = (each.source.switches for each in records if each.source)
    return list(changes)


@settings(max_examples=10)
@given(data=st.data(), network=networks())
def test_frames_on_two_routes_are_computed_as_by_the_unsliced_network(
    data: st.DataObject, network: Network
) -> None:
    check_routed(data, network, 100)


@pytest.mark.ci
@settings(max_examples=150, deadline=None)
@given(data=st.data(), network=networks())
def test_frames_on_many_pairs_of_routes_are_computed_as_by_the_unsliced_network(
    data: st.DataObject, network: Network
) -> None:
    check_routed(data, network, 100)


WHOLE = dict.fromkeys(FIGURE_2_RANKS, 0)


@pytest.mark.parametrize(("switch", "expected"), [("normal", []), ("surge", [0]), ("auto", [0])])
def test_without_times_of_arrivals_frames_take_one_route(
    tmp_path: Path, switch: str, expected: list[int]
) -> None:
    folder = build_routed(tmp_path, figure_2(), WHOLE, FIGURE_2_RANKS)
    options = RunOptions(results=folder / "results.bin", exact=True, frames=30, switch=switch)
    records = run_in_process(folder, options)
    assert expected == [change.frame for change in changes_of(records)]
    assert [0 if expected else 30, 0, 0, 0] == [record.frames for record in records]
    check_results(folder, 30)


def test_a_burst_takes_the_route_for_a_surge_and_what_comes_later_the_normal_one(
    tmp_path: Path,
) -> None:
    folder = build_routed(tmp_path, figure_2(), WHOLE, FIGURE_2_RANKS)
    times_s = [0.0] * 40 + [0.3 + 0.02 * number for number in range(30)]
    trace = tmp_path / "trace.txt"
    trace.write_text("".join(f"{time_s:.3f}\n" for time_s in times_s))
    options = RunOptions(
        results=folder / "results.bin",
        exact=True,
        frames=len(times_s),
        arrivals=trace,
        normal_fps=1000.0,
        normal_after_s=0.05,
    )
    records = run_in_process(folder, options)
    first, second, *_ = changes_of(records)
    assert ("surge", "normal") == (first.route, second.route)
    assert first.frame <= 1
    assert first.reason.endswith(" frames were waiting")
    assert 40 <= second.frame < 70
    check_results(folder, 70)


def test_a_queue_that_is_shorter_than_the_usual_mark_can_begin_a_surge(tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text("0\n" * 4)
    folder = build_routed(tmp_path, figure_2(), WHOLE, FIGURE_2_RANKS)
    options = RunOptions(results=folder / "results.bin", arrivals=tmp_path / "trace.txt", queue=4)
    records = run_in_process(folder, replace(options, frames=4))
    (change,) = changes_of(records)
    assert "surge" == change.route
    # Those that arrive while the source looks are seen at the next look.
    assert change.frame <= 1
    assert change.reason.endswith(" frames were waiting")
    assert 4 == len(read_results(folder / "results.bin").records)


def test_ranks_tell_what_they_computed_on_each_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "make_switching", lambda *_, **__: AtRandom(1))
    folder = build_routed(tmp_path, figure_2(), WHOLE, FIGURE_2_RANKS)
    options = RunOptions(results=folder / "results.bin", frames=50)
    records = run_in_process(folder, options)
    changes = changes_of(records)
    ends = [*(change.frame for change in changes), 50]
    on_surge = sum(
        end - change.frame
        for change, end in zip(changes, ends[1:], strict=True)
        if change.route == "surge"
    )
    assert 0 < on_surge < 50
    assert [50 - on_surge, 0, 0, 0] == [record.frames for record in records]
    assert [0, *[on_surge] * 3] == [record.surge and record.surge.frames for record in records]
