"""What follows from the records of a job."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from line_graphs import line_graph
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, job_of, planned, routed

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import ALL, Job, Tensor, Turns


def test_a_job_says_what_the_plan_says() -> None:
    job = job_of(planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS))
    assert (Tensor("input", "float32", (1, 4)),) == job.inputs
    assert (Tensor("output", "float32", (1, 4)),) == job.outputs
    assert ["edge01_arm123", "edge01_gpu", "edge04_arm45"] == [rank.key for rank in job.ranks]
    assert [0, 1] == [segment.index for segment in job.segments_of(0)]
    assert (0, 2, 7, 8) == (job.source, job.sink, job.path_length, job.window)
    expected = [(1, "Buff1", 0, 1), (2, "Buff1", 0, 2), (3, "Buff3", 2, 0), (4, "Buff2", 1, 0)]
    channels = [(c.number, c.tensor, c.source, c.destination) for c in job.channels]
    assert {entry[1:] for entry in expected} < {entry[1:] for entry in channels}


def in_turn() -> Job:
    graph = line_graph("a: x -> s\nb: x s -> y", outputs="y")
    plan = planned(graph, {"a": 0, "b": 1}, weights={0: (2, 1), 1: (1, 1)})
    return job_of(plan)


def test_a_job_has_the_turns_of_its_ranks() -> None:
    job = in_turn()
    turns = [Turns(3, (0, 2)), Turns(3, (1,)), Turns(2, (0,)), Turns(2, (1,))]
    assert turns == [rank.turns for rank in job.ranks]
    assert [2, 3, 2, 2] == [segment.levels for segment in job.segments]


def test_inputs_are_there_in_all_frames_at_the_source_alone() -> None:
    job = in_turn()
    assert (0, ALL) == (job.source, job.turns_of_maker(0, "x"))
    assert [Turns(3, (0, 2)), Turns(3, (1,))] == [job.turns_of_maker(rank, "s") for rank in (0, 1)]
    assert Turns(3, (0, 2)) == job.turns_of_reader(0, "x")


def test_results_are_needed_in_all_frames_at_the_sink_alone() -> None:
    job = in_turn()
    assert (2, ALL) == (job.sink, job.turns_of_reader(2, "y"))
    assert Turns(2, (0,)) == job.turns_of_reader(2, "s")
    assert Turns(2, (1,)) == job.turns_of_reader(3, "y")


def test_a_job_has_the_routes_that_the_plan_has() -> None:
    whole = dict.fromkeys(FIGURE_2_RANKS, 0)
    plan = routed(FIGURE_2, whole, FIGURE_2_RANKS, surge_weights={1: (2, 1)})
    job = job_of(plan)
    assert job.surge == job.routes[1]
    assert [None, None] == [route.surge for route in job.routes]
    for expected, found in zip(plan.routes, job.routes, strict=True):
        assert expected.job.window == found.window
        assert [each.number for each in expected.channels] == [c.number for c in found.channels]
        assert [each.file for each in expected.segments] == [s.file for s in found.segments]
        assert [astuple(rank.turns) for rank in expected.ranks] == [
            (rank.turns.period, rank.turns.positions) for rank in found.ranks
        ]


def test_the_digest_of_a_job_is_of_what_it_says() -> None:
    job = in_turn()
    assert job.sha256 == in_turn().sha256
    others = [
        replace(job, window=job.window - 1),
        replace(job, ranks=(*job.ranks[:-1], replace(job.ranks[-1], cores=(7,)))),
        replace(job, inputs=(replace(job.inputs[0], quantisation=(0.5, 0.0)),)),
    ]
    assert 4 == len({job.sha256, *(each.sha256 for each in others)})


@pytest.mark.parametrize("dtype", ["string", "object", "datetime64[s]", "nothing", ""])
def test_a_type_without_a_fixed_size_has_no_storage(dtype: str) -> None:
    with pytest.raises(JobError) as error:
        Tensor("t", dtype, (1,)).storage  # noqa: B018
    assert f"tensor 't': values of type {dtype!r} have no fixed size" == str(error.value)
