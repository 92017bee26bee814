"""Jobs with two routes inside one process: the route changes at random frames."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import run_in_process
from jobs import FIGURE_2_RANKS, FIRST_CORE, figure_2, unsliced_outputs
from strategies import Network, assignments, networks, pairs_of

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline import setup
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sources.switching import Seen
from rankslice.commands.build.build import BuildOptions, build


class AtRandom:
    """Changes the route before one of four frames."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._decided = -1

    def decide(self, route: int, seen: Seen) -> tuple[int, str]:
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
    turns: int = 1,
) -> Path:
    """Build a job with two routes, whose ranks are others on each, or the same as far as can be."""
    onnx.save(model, folder / "model.onnx")
    first = max(usual.values()) + 3 if apart else 2
    normal = write_mapping(folder / "normal.json", usual, 2, 1)
    other = write_mapping(folder / "surge.json", surge, first, turns)
    options = BuildOptions(share_cores=True, surge=other)
    return build(folder / "model.onnx", normal, "local", folder / "out", options).folder


@settings(max_examples=25, deadline=None)
@given(data=st.data(), network=networks())
def test_frames_on_two_routes_are_computed_as_by_the_unsliced_network(
    data: st.DataObject, network: Network
) -> None:
    usual, surge = (data.draw(assignments(network.graph(), 3)) for _ in range(2))
    window = data.draw(st.one_of(st.none(), st.integers(1, 6)))
    seed, apart = data.draw(st.integers(0, 99)), data.draw(st.booleans())
    frames = 40
    with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "_switching", lambda _: AtRandom(seed))
        folder = build_routed(
            *(Path(temporary), network.model(), usual, surge),
            apart=apart,
            turns=data.draw(st.integers(1, 3)),
        )
        ranks = len(json.loads((folder / "plan.json").read_text())["ranks"])
        options = RunOptions(
            results=folder / "results.bin", exact=True, frames=frames, window=window
        )
        records = run_in_process(folder, options, direct=data.draw(pairs_of(ranks)))
        results = read_results(folder / "results.bin")
        assert list(range(frames)) == results.records["frame"].tolist()
        for output, values in enumerate(unsliced_outputs(folder, ["random"], frames)):
            np.testing.assert_array_equal(values, results.values(output))
        switches = next(each["source"]["switches"] for each in records if "source" in each)
        assert len(switches) > 1
        routes = [each["route"] for each in switches]
        assert all(one != other for one, other in itertools.pairwise(routes))


def test_ranks_tell_what_they_computed_on_each_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "_switching", lambda _: AtRandom(1))
    whole = dict.fromkeys(FIGURE_2_RANKS, 0)
    folder = build_routed(tmp_path, figure_2(), whole, FIGURE_2_RANKS)
    options = RunOptions(results=folder / "results.bin", frames=50)
    records = run_in_process(folder, options)
    changes = next(each["source"]["switches"] for each in records if "source" in each)
    ends = [*(change["frame"] for change in changes), 50]
    on_surge = sum(
        end - change["frame"]
        for change, end in zip(changes, ends[1:], strict=True)
        if change["route"] == "surge"
    )
    assert 0 < on_surge < 50
    assert [50 - on_surge, 0, 0, 0] == [record["computed"] for record in records]
    assert [0, *[on_surge] * 3] == [record["surge"]["computed"] for record in records]
