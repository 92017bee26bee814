"""Two mappings as one set of ranks, and two plans as one."""

from __future__ import annotations

from dataclasses import replace

from line_graphs import line_graph
from placements import placements
from plans import planned, routed

from rankslice.backend.runtime.job import ALL, Turns
from rankslice.framework.mapping import Placements
from rankslice.frontend.plan.surge_route import JoinedRanks, join_ranks

CHAIN = line_graph("conv: x -> a\nrelu: a -> y", outputs="y")


def joined(usual: tuple[str, ...], surge: tuple[str, ...]) -> JoinedRanks:
    """Join ranks, each on the core that its key names."""
    both = (
        Placements(
            tuple(
                replace(rank, cores=(int(rank.key.rpartition("cpu")[2]),))
                for rank in placements(*keys)
            )
        )
        for keys in (usual, surge)
    )
    return join_ranks(*both)


def test_a_key_of_both_mappings_is_one_rank() -> None:
    found = joined(("a_cpu0", "b_cpu1"), ("c_cpu2", "b_cpu1"))
    assert ["a_cpu0", "b_cpu1", "c_cpu2"] == [rank.key for rank in found.usual]
    assert [0, 1, 2] == [rank.rank for rank in found.usual]
    assert (2, 1) == found.number
    assert {0} == found.idle


def test_both_routes_have_the_same_ranks_with_their_own_turns() -> None:
    first, second = Turns(2, (0,)), Turns(2, (1,))
    a, b, c = placements("a_cpu0", "a_cpu1", "a_cpu2")
    usual = Placements((replace(a, turns=first), replace(b, turns=second)))
    surge = Placements((replace(b, rank=0, turns=first), replace(c, rank=1, turns=second)))
    found = join_ranks(usual, surge)
    assert [first, second, ALL] == [rank.turns for rank in found.usual]
    assert [ALL, first, second] == [rank.turns for rank in found.surge]
    assert [replace(rank, turns=ALL) for rank in found.usual] == [
        replace(rank, turns=ALL) for rank in found.surge
    ]


def test_ranks_of_two_routes_that_have_a_core_in_common_share_it() -> None:
    several = replace(placements("a_cpu0-3")[0], cores=(0, 1, 2, 3))
    elsewhere = replace(placements("b_cpu0")[0], rank=1)
    found = join_ranks(Placements(placements("a_cpu0", "a_cpu1")), Placements((several, elsewhere)))
    assert ["a_cpu0", "a_cpu1", "a_cpu0-3", "b_cpu0"] == [rank.key for rank in found.usual]
    assert [True, True, True, False] == [rank.shared for rank in found.usual]


def test_a_rank_of_both_routes_shares_its_core_with_no_other() -> None:
    found = joined(("a_cpu0",), ("a_cpu0", "a_cpu1"))
    assert [False, False] == [rank.shared for rank in found.usual]


GPU = placements("a_gpu")[0]


def driven_by(core: int, *cpus: int) -> Placements:
    """Return a GPU that a core drives, and CPU ranks."""
    ranks = [replace(GPU, accelerator="gpu", cores=(core,))]
    ranks += [replace(GPU, key=f"a_cpu{cpu}", cores=(cpu,)) for cpu in cpus]
    return Placements(tuple(replace(rank, rank=at) for at, rank in enumerate(ranks)))


def test_the_core_that_drives_a_gpu_is_free_on_both_routes() -> None:
    # Each mapping alone takes the lowest core that it leaves free.
    for usual, surge in ((driven_by(0), driven_by(1, 0)), (driven_by(1, 0), driven_by(0))):
        found = join_ranks(usual, surge)
        assert (1,) == found.usual[0].cores == found.surge[0].cores
        assert [False, False] == [rank.shared for rank in found.usual]
        assert () == found.warnings


def test_a_gpu_for_which_no_core_is_free_on_both_routes_is_warned_of() -> None:
    found = join_ranks(driven_by(0, 1), driven_by(1, 0))
    assert (0,) == found.usual[0].cores == found.surge[0].cores
    assert [True, False, True] == [rank.shared for rank in found.usual]
    assert (
        "a_gpu: core 0 drives it, and another rank has it in a surge;"
        " name a core that is free on both routes, as in gpu@4",
    ) == found.warnings


def test_segments_and_channels_of_the_surge_follow_the_others() -> None:
    plan = routed(CHAIN, {"conv": 0, "relu": 1}, {"conv": 0, "relu": 1}, shift=1)
    assert plan.surge is not None
    assert ["submodels/board_cpu0.0.onnx", "submodels/board_cpu1.0.onnx"] == [
        segment.file for segment in plan.segments
    ]
    # The first rank of the surge's mapping is the second one of the other.
    assert [
        (1, 1, "submodels/board_cpu1.1.onnx"),
        (2, 0, "submodels/board_cpu2.0.onnx"),
    ] == [(segment.rank, segment.index, segment.file) for segment in plan.surge.segments]
    assert [(1, "a", 0, 1)] == [
        (channel.number, channel.tensor, channel.source, channel.destination)
        for channel in plan.channels
    ]
    assert [(2, "x", 0, 1), (3, "a", 1, 2), (4, "y", 2, 1)] == [
        (channel.number, channel.tensor, channel.source, channel.destination)
        for channel in plan.surge.channels
    ]


def test_frames_enter_and_leave_where_they_do_on_the_usual_route() -> None:
    usual = {"conv": 0, "relu": 1}
    plan = routed(CHAIN, usual, {"conv": 0, "relu": 0}, shift=2)
    assert [(0, 1)] * 2 == [(route.job.source, route.job.sink) for route in plan.routes]
    alone = planned(CHAIN, usual)
    assert alone.segments == plan.segments
    assert alone.channels == plan.channels
    assert alone.job.path_length == plan.job.path_length


def test_a_plan_knows_tensors_that_only_the_surge_exchanges() -> None:
    plan = routed(CHAIN, {"conv": 0, "relu": 0}, {"conv": 0, "relu": 1})
    assert ["x", "a", "y"] == [tensor.name for tensor in plan.job.tensors.values()]
