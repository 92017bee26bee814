"""Reading plan.json on a board."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from line_graphs import line_graph
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, job_of, planned, routed

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import ALL, Job, Tensor, Turns, load_job
from rankslice.backend.runtime.tables import check_tables, tables
from rankslice.framework.plan import plan_to_json

TEXT = plan_to_json(planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS))


def message(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(JobError) as error:
        load_job(path)
    return str(error.value)


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    record = json.loads(TEXT)
    change(record)
    return json.dumps(record)


def test_a_job_says_what_the_plan_says(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(TEXT)
    job = load_job(tmp_path / "plan.json")
    assert hashlib.sha256(TEXT.encode()).hexdigest() == job.sha256
    assert (Tensor("input", "float32", (1, 4)),) == job.inputs
    assert (Tensor("output", "float32", (1, 4)),) == job.outputs
    assert ["edge01_arm123", "edge01_gpu", "edge04_arm45"] == [rank.key for rank in job.ranks]
    assert [0, 1] == [segment.index for segment in job.segments_of(0)]
    assert (0, 2, 7, 8) == (job.source_rank, job.sink_rank, job.path_length, job.window)
    expected = [(1, "Buff1", 0, 1), (2, "Buff1", 0, 2), (3, "Buff3", 2, 0), (4, "Buff2", 1, 0)]
    found = [(c.number, c.tensor, c.source, c.destination) for c in job.channels]
    assert {entry[1:] for entry in expected} < {entry[1:] for entry in found}


def in_turn(tmp_path: Path) -> Job:
    graph = line_graph("a: x -> s\nb: x s -> y", outputs="y")
    plan = planned(graph, {"a": 0, "b": 1}, weights={0: (2, 1), 1: (1, 1)})
    (tmp_path / "plan.json").write_text(plan_to_json(plan))
    return load_job(tmp_path / "plan.json")


def test_a_job_has_the_turns_of_its_ranks(tmp_path: Path) -> None:
    job = in_turn(tmp_path)
    turns = [Turns(3, (0, 2)), Turns(3, (1,)), Turns(2, (0,)), Turns(2, (1,))]
    assert turns == [rank.turns for rank in job.ranks]
    assert [2, 3, 2, 2] == [segment.levels for segment in job.segments]


def test_inputs_are_there_in_all_frames_at_the_source_alone(tmp_path: Path) -> None:
    job = in_turn(tmp_path)
    assert (0, ALL) == (job.source_rank, job.turns_of_maker(0, "x"))
    assert [Turns(3, (0, 2)), Turns(3, (1,))] == [job.turns_of_maker(rank, "s") for rank in (0, 1)]
    assert Turns(3, (0, 2)) == job.turns_of_reader(0, "x")


def test_results_are_needed_in_all_frames_at_the_sink_alone(tmp_path: Path) -> None:
    job = in_turn(tmp_path)
    assert (2, ALL) == (job.sink_rank, job.turns_of_reader(2, "y"))
    assert Turns(2, (0,)) == job.turns_of_reader(2, "s")
    assert Turns(2, (1,)) == job.turns_of_reader(3, "y")


def test_a_driver_that_says_other_turns_than_the_plan_is_refused(tmp_path: Path) -> None:
    job = in_turn(tmp_path)
    ranks = dict(enumerate(tables(job)))
    check_tables(job, job.sha256, ranks)
    ranks[1] = replace(ranks[1], turns=Turns(3, (2,)))
    with pytest.raises(JobError, match=r"driver.py and plan.json differ on rank 1"):
        check_tables(job, job.sha256, ranks)


def test_a_job_has_the_routes_that_the_plan_has() -> None:
    whole = dict.fromkeys(FIGURE_2_RANKS, 0)
    plan = routed(FIGURE_2, whole, FIGURE_2_RANKS, surge_weights={1: (2, 1)})
    job = job_of(plan)
    assert job.surge == job.routes[1]
    assert [None, None] == [route.surge for route in job.routes]
    for expected, found in zip(plan.routes, job.routes, strict=True):
        assert expected.window == found.window
        assert [each.number for each in expected.channels] == [c.number for c in found.channels]
        assert [each.file for each in expected.segments] == [s.file for s in found.segments]
        assert [astuple(rank.turns) for rank in expected.ranks] == [
            (rank.turns.period, rank.turns.positions) for rank in found.ranks
        ]


def test_a_missing_plan_is_told(tmp_path: Path) -> None:
    with pytest.raises(JobError) as error:
        load_job(tmp_path / "plan.json")
    assert f"{tmp_path}/plan.json: No such file or directory" == str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"[" * 100_000,
        b"\xff\xfe",
        b"{}",
        changed(lambda plan: plan.pop("version")),
        changed(lambda plan: plan.pop("window")),
        changed(lambda plan: plan["ranks"][1].pop("key")),
        changed(lambda plan: plan.update(ranks=None)),
        changed(lambda plan: plan["tensors"].clear()),
        changed(lambda plan: plan["model"].update(inputs=["nothing"])),
        changed(lambda plan: plan["segments"][0].update(inputs=3)),
        changed(lambda plan: plan["ranks"][0].update(options=["a"])),
        changed(lambda plan: plan.pop("surge")),
        changed(lambda plan: plan.update(surge={})),
        changed(lambda plan: plan.update(surge={**plan, "turns": []})),
    ],
)
def test_what_is_no_plan_is_told(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "plan.json"
    assert message(path, content).startswith(f"{path}: not a plan (")


def test_another_format_is_told(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    text = changed(lambda plan: plan.update(format="package"))
    assert f"{path}: format is 'package', expected 'rankslice-plan'" == message(path, text)


@pytest.mark.parametrize("version", [3, 5])
def test_another_version_is_told(version: int, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    expected = (
        f"{path}: this is a plan of version {version}, not 4; made by another version of RankSlice:"
        " build again"
    )
    assert expected == message(path, changed(lambda plan: plan.update(version=version)))


def test_a_name_that_is_missing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    expected = f"{path}: not a plan (there is no 'surge'); build again"
    assert expected == message(path, changed(lambda plan: plan.pop("surge")))


@pytest.mark.parametrize("dtype", ["string", "object", "datetime64[s]", "nothing", ""])
def test_a_type_without_a_fixed_size_has_no_storage(dtype: str) -> None:
    with pytest.raises(JobError) as error:
        Tensor("t", dtype, (1,)).storage  # noqa: B018
    assert f"tensor 't': values of type {dtype!r} have no fixed size" == str(error.value)
