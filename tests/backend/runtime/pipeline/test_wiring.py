"""What a rank sets up for a plan: rings and their depths, readers, sends, receives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given, strategies as st
from line_graphs import line_graph
from plans import (
    FIGURE_2,
    FIGURE_2_PLACEMENTS,
    FIGURE_2_RANKS,
    job_of,
    planned,
    plans,
    routed,
    wire,
)
from strategies import pairs_of

from rankslice.backend.runtime.job import EACH, Job, Steps, Turns
from rankslice.backend.runtime.pipeline.direct_channels import NEWS, DirectChannels
from rankslice.backend.runtime.pipeline.stages import CREDITS, ROOM
from rankslice.backend.runtime.pipeline.wiring import (
    CREDIT,
    CREDIT_CHANNEL,
    HEARTBEAT_CHANNEL,
    Pairs,
    Reader,
    RingSpec,
    SendSpec,
    Wiring,
    pairs_within_boards,
    threadless_stages,
    wire_all,
)
from rankslice.framework.graph import Graph


def figure_2() -> Job:
    return job_of(planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS))


SKIP = line_graph("a: x -> s\nb: s -> t\nc: s t -> y", outputs="y")
"""Tensor s skips layer b."""


def depths(wiring: Wiring) -> dict[str, int]:
    return {ring.tensor.name: ring.depth for ring in wiring.rings}


def readers(wiring: Wiring) -> dict[str, int]:
    return {ring.tensor.name: len(ring.readers) for ring in wiring.rings}


def test_a_ring_has_a_slot_more_than_levels_lie_between_writer_and_reader() -> None:
    # Levels: source 0, a 1, hop, b 3, hop, c 5; s is written at 1 and read at 5.
    job = job_of(planned(SKIP, {"a": 0, "b": 1, "c": 0}))
    by_tensor = depths(wire(job, 0, 99))
    assert {"x": 1 - 0 + 1, "s": 5 - 1 + 1, "t": 5 - 4 + 1, "y": 6 - 5 + 1} == {
        name: depth for name, depth in by_tensor.items() if name != CREDIT.name
    }


def test_a_skip_channel_gets_more_slots_than_the_way_it_skips() -> None:
    # s goes to rank 2 past rank 1; it arrives at level 2 and waits for t until level 5.
    job = job_of(planned(SKIP, {"a": 0, "b": 1, "c": 2}))
    by_tensor = depths(wire(job, 2, 99))
    assert 5 - 2 + 1 == by_tensor["s"]
    assert 5 - 4 + 1 == by_tensor["t"]


def test_no_ring_has_more_slots_than_the_window() -> None:
    job = job_of(planned(SKIP, {"a": 0, "b": 1, "c": 0}))
    assert {1} == set(depths(wire(job, 0, 1)).values())
    assert 3 == max(depths(wire(job, 0, 3)).values())


def test_a_tensor_has_a_reader_for_each_segment_and_each_channel() -> None:
    by_tensor = readers(wire(figure_2(), 0, 8))
    assert {"input": 1, "Buff1": 2, "Buff4": 1, "Buff2": 1, "Buff3": 1, CREDIT.name: 1} == by_tensor


def test_the_completion_credit_goes_from_sink_to_source_in_a_ring_as_deep_as_the_window() -> None:
    source, other, sink = (wire(figure_2(), rank, 5) for rank in range(3))
    assert 5 == depths(source)[CREDIT.name] == depths(sink)[CREDIT.name]
    assert CREDIT.name not in depths(other)
    assert [(CREDIT_CHANNEL, 2)] == [
        (r.channel, r.sender) for r in source.receives if r.channel == CREDIT_CHANNEL
    ]
    assert [(CREDIT_CHANNEL, 0)] == [
        (s.channel, s.destination) for s in sink.sends if s.channel == CREDIT_CHANNEL
    ]


def test_a_rank_that_is_source_and_sink_keeps_the_credit_to_itself() -> None:
    wiring = wire(job_of(planned(SKIP, {"a": 0, "b": 1, "c": 0})), 0, 5)
    assert wiring.source is not None
    assert wiring.sink is not None
    (credit,) = wiring.sink.outputs
    assert [credit] == [reader.ring for reader in wiring.source.readers]
    assert CREDIT_CHANNEL not in {end.channel for end in (*wiring.sends, *wiring.receives)}


SKIPPED = job_of(planned(SKIP, {"a": 0, "b": 1, "c": 2}))
"""Rank 0 sends s to ranks 1 and 2, rank 1 sends t to rank 2, which sends the credits to rank 0."""


def pairs(*given: tuple[int, int]) -> Pairs:
    return frozenset(given)


def direct_channels(wiring: Wiring) -> list[tuple[str, int, int]]:
    """Return tensor, home and depth of each direct channel to a rank."""
    rings = [(wiring.rings[view.ring], view.sender) for view in wiring.views]
    assert all(sender == ring.home for ring, sender in rings)
    return [(ring.tensor.name, sender, ring.depth) for ring, sender in rings]


def test_a_ring_is_as_deep_as_its_last_reader_on_any_rank_of_the_board_needs() -> None:
    # Levels as above: s is written at 1 and read at 5, on another rank.
    first, middle, last = (wire(SKIPPED, rank, 99, pairs((0, 1), (0, 2))) for rank in range(3))
    assert 5 - 1 + 1 == depths(first)["s"]
    assert [("s", 0, 5)] == direct_channels(middle)
    assert [("s", 0, 5)] == direct_channels(last)


def test_a_shared_ring_has_a_reader_for_each_rank_that_reads_it() -> None:
    wiring = wire(SKIPPED, 0, 99, pairs((0, 1), (0, 2)))
    assert 2 == readers(wiring)["s"]
    assert {(1, 0), (2, 1)} == {(s.destination, s.reader.index) for s in wiring.shares}
    assert [] == wiring.sends
    assert {"s"} == {ring.tensor.name for ring in wiring.rings if ring.is_shared}


def test_a_tensor_travels_once_to_ranks_that_share_memory() -> None:
    first, middle, last = (wire(SKIPPED, rank, 99, pairs((1, 2))) for rank in range(3))
    assert [1] == [send.destination for send in first.sends]
    assert [0] == [receive.sender for receive in middle.receives]
    # Rank 1 gets s at level 2, and rank 2 reads it there at level 5.
    assert ("s", 1, 5 - 2 + 1) in direct_channels(last)
    assert 5 - 2 + 1 == depths(middle)["s"]
    # The sender needs its slots until the one message has left.
    assert 2 - 1 + 1 == depths(first)["s"]


def test_sharing_memory_is_not_transitive() -> None:
    last = wire(SKIPPED, 2, 99, pairs((0, 1), (1, 2)))
    assert [0] == [receive.sender for receive in last.receives]
    assert [("t", 1, 5 - 3 + 1)] == direct_channels(last)


def test_credits_are_direct_if_source_and_sink_share_memory() -> None:
    source, _, sink = (wire(SKIPPED, rank, 5, pairs((0, 2))) for rank in range(3))
    assert (CREDIT.name, 2, 5) in direct_channels(source)
    assert not source.receives_credits
    assert CREDIT_CHANNEL in {share.channel for share in sink.shares}
    assert CREDIT_CHANNEL not in {send.channel for send in sink.sends}


def test_credits_wake_nobody_and_frames_wake_the_thread_that_reads_them() -> None:
    job = job_of(planned(line_graph("a: x -> t\nb: t -> y", outputs="y"), {"a": 0, "b": 1}))
    # Of the source's rank: credits come into the inbox that is looked at if there is no room.
    # The sink has none: the window bounds the credits.
    used = {
        (0, "source"): {CREDITS},
        (0, "compute"): {ROOM},
        (1, "compute"): {NEWS},
        (1, "sink"): {},
    }
    for (rank, thread), expected in used.items():
        channels = DirectChannels(wire(job, rank, 4, pairs((0, 1))), {})
        assert {*expected} == {*channels.post(thread).inboxes}
        channels.close()


def test_no_ring_is_without_slots() -> None:
    for window in (1, 2, 9):
        for rank in range(3):
            assert min(depths(wire(figure_2(), rank, window)).values()) >= 1


def test_each_rank_hears_the_one_before_and_beats_for_the_next() -> None:
    direct = pairs((0, 1))
    for rank, (before, after) in enumerate([(2, 1), (0, 2), (1, 0)]):
        wiring = wire_all(SKIPPED, 5, direct, heartbeats=True)[rank]
        beats, heard = len(wiring.rings) - 2, len(wiring.rings) - 1
        to = [s.destination for s in (*wiring.sends, *wiring.shares) if s.reader.ring == beats]
        by = [r.sender for r in (*wiring.receives, *wiring.views) if r.ring == heard]
        assert ([after], [before]) == (to, by)
        assert (rank == 0) == (HEARTBEAT_CHANNEL in {share.channel for share in wiring.shares})
        assert (rank == 1) == (HEARTBEAT_CHANNEL in {view.channel for view in wiring.views})


def test_a_job_of_one_rank_has_no_channels_for_heartbeats() -> None:
    job = job_of(planned(SKIP, {"a": 0, "b": 0, "c": 0}))
    (wiring,) = wire_all(job, 5, heartbeats=True)
    assert ([], [], [], []) == (wiring.sends, wiring.receives, wiring.shares, wiring.views)


def test_ranks_of_a_board_are_pairs() -> None:
    assert pairs((0, 1)) == pairs_within_boards(figure_2())


@st.composite
def jobs_and_pairs(draw: st.DrawFn) -> tuple[Job, Pairs]:
    """Draw jobs, and which of their ranks share memory: not always transitively."""
    job = job_of(draw(plans()))
    return job, draw(pairs_of(len(job.ranks)))


@given(jobs_and_pairs(), st.integers(1, 9))
def test_every_channel_has_two_ends_of_the_same_tensor(
    drawn: tuple[Job, Pairs], window: int
) -> None:
    job, direct = drawn
    wirings = wire_all(job, window, direct)
    sends, receives, shares, views = (
        {
            (
                end.channel,
                *((rank, end.destination) if isinstance(end, SendSpec) else (end.sender, rank)),
                wiring.rings[end.reader.ring if isinstance(end, SendSpec) else end.ring].tensor,
            )
            for rank, wiring in enumerate(wirings)
            for end in getattr(wiring, kind)
        }
        for kind in ("sends", "receives", "shares", "views")
    )
    assert sends == receives
    assert shares == views
    assert {c.number for c in job.channels} == {end[0] for end in (*sends, *shares)} - {0}
    assert not any(tuple(sorted(end[1:3])) in direct for end in sends)
    assert all(tuple(sorted(end[1:3])) in direct for end in shares)


@given(jobs_and_pairs(), st.integers(1, 9))
def test_a_view_is_as_deep_as_the_ring_that_it_shows(drawn: tuple[Job, Pairs], window: int) -> None:
    job, direct = drawn
    wirings = wire_all(job, window, direct)
    for rank, wiring in enumerate(wirings):
        for view in wiring.views:
            (share,) = (
                share
                for share in wirings[view.sender].shares
                if (share.channel, share.destination) == (view.channel, rank)
            )
            shown = wirings[view.sender].rings[share.reader.ring]
            assert shown.is_shared
            assert shown.home is None
            assert shown.depth == wiring.rings[view.ring].depth


@given(jobs_and_pairs())
def test_no_frame_is_sent_twice_to_ranks_that_share_memory(drawn: tuple[Job, Pairs]) -> None:
    job, direct = drawn
    for rank, wiring in enumerate(wire_all(job, 3, direct)):
        sent = [(wiring.rings[s.reader.ring].tensor.name, s.destination) for s in wiring.sends]
        for (tensor, one), (other_tensor, other) in combinations(sorted(sent), 2):
            if tensor == other_tensor and (one, other) in direct:
                turns = [job.turns_of_reader(reader, tensor) for reader in (one, other)]
                assert not turns[0].covers(turns[1])
                assert not turns[1].covers(turns[0])
        assert not any(tuple(sorted((rank, other))) in direct for _, other in sent)


def _check_places(wiring: Wiring) -> None:
    """Check that each reader of a ring is one, and that there are no others."""
    taken = [reader for _, stage in wiring.segments for reader in stage.readers]
    taken += [end.reader for end in (*wiring.sends, *wiring.shares)]
    for stage in (wiring.source, wiring.sink):
        taken += stage.readers if stage is not None else ()
    places = sorted((reader.ring, reader.index) for reader in taken)
    assert places == [
        (number, place)
        for number, ring in enumerate(wiring.rings)
        for place in range(len(ring.readers))
    ]


@given(jobs_and_pairs(), st.integers(1, 9))
def test_every_reader_has_a_place_of_its_own(drawn: tuple[Job, Pairs], window: int) -> None:
    job, direct = drawn
    for wiring in wire_all(job, window, direct):
        _check_places(wiring)
        assert all(1 <= ring.depth <= window for ring in wiring.rings)


CHAIN = line_graph("a: x -> s\nb: s -> t\nc: t -> y", outputs="y")


def in_turns(graph: Graph, ranks: dict[str, int], weights: dict[int, tuple[int, ...]]) -> Job:
    return job_of(planned(graph, ranks, weights=weights))


MIDDLE = in_turns(CHAIN, {"a": 0, "b": 1, "c": 2}, {1: (2, 1)})
"""Ranks 1 and 2 take turns between ranks 0 and 3."""


def rings_of(wiring: Wiring, tensor: str) -> list[tuple[str, int]]:
    """Return which frames each ring of a tensor has, and how deep it is."""
    rings = [ring for ring in wiring.rings if ring.tensor.name == tensor]
    return [(f"{ring.turns.positions} of {ring.turns.period}", ring.depth) for ring in rings]


def places(readers: Sequence[Reader], wiring: Wiring) -> list[tuple[str, Steps]]:
    """Return the tensors that readers read, and which frames of their rings."""
    return [
        (wiring.rings[each.ring].tensor.name, wiring.rings[each.ring].readers[each.index])
        for each in readers
    ]


def test_what_ranks_make_in_turn_is_received_in_a_ring_for_each() -> None:
    wiring = wire(MIDDLE, 3, 99)
    # b is at level 4, so its results come at 5; c is at 6. So two frames wait, which may be one of
    # each, but no two of the rank with one frame in three.
    assert [("(0, 2) of 3", 2), ("(1,) of 3", 1)] == rings_of(wiring, "t")
    ((_, stage),) = wiring.segments
    (parts,) = stage.inputs
    assert [("t", EACH), ("t", EACH)] == places(parts, wiring)
    assert [1, 2] == [receive.sender for receive in wiring.receives if receive.channel]


def test_each_rank_that_takes_turns_is_sent_its_frames_of_a_ring() -> None:
    wiring = wire(MIDDLE, 0, 99)
    sent = places([send.reader for send in wiring.sends], wiring)
    assert [("s", Steps(0, (2, 0, 1))), ("s", Steps(1, (0, 3, 0)))] == sent
    assert [1, 2] == [send.destination for send in wiring.sends]


def test_a_rank_that_takes_turns_has_rings_of_its_own_frames() -> None:
    wiring = wire(MIDDLE, 1, 99)
    assert [("(0, 2) of 3", 2)] == rings_of(wiring, "s")
    assert [("(0, 2) of 3", 2)] == rings_of(wiring, "t")


def test_a_result_may_be_written_from_the_first_of_a_segments_levels_on() -> None:
    job = in_turns(CHAIN, {"a": 0, "b": 1, "c": 2}, {1: (1, 1, 1)})
    # b takes the levels 3 to 5, and its result has left at 6: of four frames two may be its own.
    assert (5, 3) == (job.segments[1].level, job.segments[1].levels)
    assert [("(0,) of 3", 2)] == rings_of(wire(job, 1, 99), "t")


def test_a_skip_over_ranks_that_take_turns_is_as_deep_as_their_levels_ask_for() -> None:
    job = in_turns(SKIP, {"a": 0, "b": 1, "c": 2}, {1: (1, 1, 1)})
    # a 1, hop, b 3 to 5, hop, c 7; s arrives at 2, and is read at 7.
    assert [1, 5, 5, 5, 7] == [segment.level for segment in job.segments]
    assert 7 - 2 + 1 == depths(wire(job, 4, 99))["s"]


def test_a_small_window_leaves_no_more_slots_than_frames_inside() -> None:
    job = in_turns(CHAIN, {"a": 0, "b": 1, "c": 2}, {1: (1, 1, 1)})
    for window, depth in ((1, 1), (2, 1), (3, 1), (4, 2)):
        assert depth == max(d for _, d in rings_of(wire(job, 1, window), "s")), window


def test_source_and_sink_handle_all_frames_beside_a_segment_that_does_not() -> None:
    wiring = wire(in_turns(line_graph("a: x -> y", outputs="y"), {"a": 0}, {0: (1, 1)}), 0, 99)
    assert wiring.source is not None
    assert wiring.sink is not None
    ((_, stage),) = wiring.segments
    assert [("x", Steps(0, (2, 0)))] == places(stage.readers, wiring)
    assert [("x", Steps(1, (0, 2)))] == places([send.reader for send in wiring.sends], wiring)
    assert "(0,) of 1" == rings_of(wiring, "x")[0][0]
    (results,) = wiring.sink.inputs
    assert [("y", EACH), ("y", EACH)] == places(results, wiring)
    assert ["(0,) of 2", "(1,) of 2"] == [turns for turns, _ in rings_of(wiring, "y")]


def test_a_ring_of_some_frames_has_steps_among_those() -> None:
    job = in_turns(CHAIN, {"a": 0, "b": 1, "c": 2}, {0: (1, 1), 1: (1, 1, 1, 1)})
    wiring = wire(job, 1, 99)
    # Rank 1 makes s in frames 1, 3, 5, ...; rank 3 needs 1, 5, ..., and rank 5 needs 3, 7, ....
    sends = [send for send in wiring.sends if wiring.rings[send.reader.ring].tensor.name == "s"]
    assert [(3, Steps(0, (2, 0))), (5, Steps(1, (0, 2)))] == [
        (send.destination, places([send.reader], wiring)[0][1]) for send in sends
    ]


SHOWN = line_graph("a: x -> s\nb: s -> t\nc: s t -> y", outputs="s y")


def test_a_message_comes_once_to_a_board_with_a_rank_that_handles_all_frames() -> None:
    job = in_turns(SHOWN, {"a": 0, "b": 1, "c": 2}, {1: (1, 1)})
    direct = pairs((1, 2), (1, 3), (2, 3))
    assert [3] == [s.destination for s in wire(job, 0, 99, direct).sends if s.channel]
    home = wire(job, 3, 99, direct)
    shares = [share for share in home.shares if share.channel != CREDIT_CHANNEL]
    shared = [(share.destination, *places([share.reader], home)) for share in shares]
    assert [(1, ("s", Steps(0, (2, 0)))), (2, ("s", Steps(1, (0, 2))))] == shared
    for rank in (1, 2):
        shown = [each for each in wire(job, rank, 99, direct).rings if each.tensor.name == "s"]
        assert [(3, Turns())] == [(each.home, each.turns) for each in shown]


def test_messages_come_to_each_rank_of_a_board_if_none_handles_the_frames_of_another() -> None:
    direct = pairs((1, 2))
    assert [1, 2] == [send.destination for send in wire(MIDDLE, 0, 99, direct).sends]
    assert [] == [each for each in wire(MIDDLE, 2, 99, direct).views if each.channel > 0]


def test_a_rank_that_takes_turns_keeps_source_and_sink_in_threads_of_their_own() -> None:
    alone = job_of(planned(CHAIN, {"a": 0, "b": 0, "c": 0})).ranks[0]
    job = in_turns(CHAIN, {"a": 0, "b": 0, "c": 0}, {0: (1, 1)})
    assert {"source", "sink"} == threadless_stages(alone, is_timed=False)
    assert [set(), set()] == [{*threadless_stages(rank, is_timed=False)} for rank in job.ranks]


@given(jobs_and_pairs(), st.integers(1, 9))
def test_a_stage_finds_each_of_its_frames_in_exactly_one_ring(
    drawn: tuple[Job, Pairs], window: int
) -> None:
    job, direct = drawn
    for rank, wiring in enumerate(wire_all(job, window, direct)):
        read = [
            (name, job.ranks[rank].turns, parts)
            for segment, stage in wiring.segments
            for name, parts in zip(segment.inputs, stage.inputs, strict=True)
        ]
        if wiring.sink is not None:
            results = zip(job.outputs, wiring.sink.inputs, strict=True)
            read += [(each.name, Turns(), parts) for each, parts in results]
        for name, turns, parts in read:
            found = []
            for reader in parts:
                ring = wiring.rings[reader.ring]
                assert name == ring.tensor.name
                index = (steps := ring.readers[reader.index]).first
                while (frame := ring.turns.frame(index)) < TOTAL:
                    found.append(frame)
                    index = steps.after(index)
            expected = [f for f in range(TOTAL) if f % turns.period in turns.positions]
            assert expected == sorted(found)


@given(jobs_and_pairs(), st.integers(1, 9))
def test_both_ends_of_a_channel_mean_the_same_frames(drawn: tuple[Job, Pairs], window: int) -> None:
    job, direct = drawn
    wirings = wire_all(job, window, direct)
    for rank, wiring in enumerate(wirings):
        for end in (*wiring.receives, *wiring.views):
            ring = wiring.rings[end.ring]
            (send,) = (
                each
                for each in (*wirings[end.sender].sends, *wirings[end.sender].shares)
                if (each.channel, each.destination) == (end.channel, rank)
            )
            theirs = wirings[end.sender].rings[send.reader.ring]
            if ring.home is not None:
                # They are the same slots, so the same frames have to be in them.
                assert theirs.turns == ring.turns
                continue
            index = (steps := theirs.readers[send.reader.index]).first
            for received in range(9):
                assert theirs.turns.frame(index) == ring.turns.frame(received)
                index = steps.after(index)


TOTAL = 2 * 72
"""Frames: those of periods up to 9 repeat after 72 at the latest."""


LAYERS = line_graph("a: x -> t\nb: t -> y", outputs="y")
ROUTED = routed(LAYERS, {"a": 0, "b": 0}, {"a": 0, "b": 1}, shift=1)
"""Rank 0 alone; for a surge ranks 1 and 2, between which rank 0 is source and sink."""


def test_a_rank_has_rings_and_stages_of_both_routes() -> None:
    wiring = wire(job_of(ROUTED), 0, 9)
    # x and y; then x, which it sends, and y, which it receives.
    assert ["x", "y", "x", "y", CREDIT.name] == [ring.tensor.name for ring in wiring.rings]
    assert [(0, (1,))] == [(segment.index, spec.outputs) for segment, spec in wiring.segments]
    assert [(0,), (2,)] == wiring.entries
    assert [[1], [3]] == [[part.ring for (part,) in parts] for parts in wiring.exits]
    assert wiring.source is not None
    assert wiring.sink is not None
    assert (0, 2) == wiring.source.outputs
    assert [4] == [reader.ring for reader in wiring.source.readers]
    assert [1, 3] == [reader.ring for reader in wiring.sink.readers]
    assert (4,) == wiring.sink.outputs
    assert [(2, 1)] == [(send.reader.ring, send.destination) for send in wiring.sends]
    assert [(3, 2)] == [(each.ring, each.sender) for each in wiring.receives]


def test_a_rank_of_one_route_has_nothing_of_the_other() -> None:
    wiring = wire(job_of(ROUTED), 1, 9)
    assert ["t", "x"] == [ring.tensor.name for ring in wiring.rings]
    assert ([(), ()], [(), ()]) == (wiring.entries, wiring.exits)
    assert wiring.source is wiring.sink is None


def test_channels_of_both_routes_have_tags_of_their_own() -> None:
    job = job_of(routed(LAYERS, {"a": 0, "b": 1}, {"a": 0, "b": 1}))
    for direct in (frozenset(), pairs((0, 1))):
        one, other = wire_all(job, 4, direct)
        sent, received = (one.shares, other.views) if direct else (one.sends, other.receives)
        assert [1, 2] == [end.channel for end in sent]
        assert [1, 2] == [end.channel for end in received if end.channel]
        credits_ = (other.shares, one.views) if direct else (other.sends, one.receives)
        assert [[0], [0]] == [[end.channel for end in ends] for ends in credits_]


def test_rings_are_as_deep_as_the_window_of_their_route_and_credits_as_the_larger_one() -> None:
    job = job_of(ROUTED)
    assert [2, 6] == [route.window for route in job.routes]
    wiring = wire(job, 0)
    assert [2, 2, 2, 2, 6] == [ring.depth for ring in wiring.rings]
    assert [1] * 5 == [ring.depth for ring in wire(job, 0, 1).rings]
    skipped = job_of(routed(SKIP, dict.fromkeys("abc", 0), {"a": 0, "b": 1, "c": 0}))
    by_route = [depths(wire(route, 0)) for route in skipped.routes]
    # s is needed from level 1 to 3, and to 5 if b is on another rank.
    assert [None, 5] == [each.get("s") for each in by_route]
    assert 5 == depths(wire(skipped, 0))["s"]


@st.composite
def routed_jobs_and_pairs(draw: st.DrawFn) -> tuple[Job, Pairs]:
    """Draw jobs with two routes over a skip connection, and which of their ranks share memory."""
    ranks = st.fixed_dictionaries({"a": st.just(0), "b": st.integers(0, 1), "c": st.just(1)})
    plan = routed(
        SKIP,
        *(draw(ranks), draw(ranks)),
        shift=draw(st.integers(0, 2)),
        surge_weights=draw(st.sampled_from([{}, {0: (1, 1)}, {1: (2, 1)}])),
    )
    job = job_of(plan)
    return job, draw(pairs_of(len(job.ranks)))


@given(routed_jobs_and_pairs(), st.one_of(st.none(), st.integers(1, 9)))
def test_the_wiring_of_two_routes_is_that_of_each_beside_the_other(
    drawn: tuple[Job, Pairs], window: int | None
) -> None:
    job, direct = drawn
    wirings = wire_all(job, window, direct)
    usual, surge = (wire_all(route, window, direct) for route in job.routes)
    for one, other, both in zip(usual, surge, wirings, strict=True):
        rings = (*_without_credits(one), *_without_credits(other))
        assert rings == _without_credits(both)
        assert len(one.segments) + len(other.segments) == len(both.segments)
        for kind in ("sends", "receives", "shares", "views"):
            channels = [{end.channel for end in getattr(each, kind)} for each in (one, other, both)]
            assert channels[0] | channels[1] == channels[2]
            assert channels[0] & channels[1] <= {CREDIT_CHANNEL}
            assert len(channels[2]) == len(getattr(both, kind))
        _check_places(both)


def _without_credits(wiring: Wiring) -> tuple[RingSpec, ...]:
    return tuple(ring for ring in wiring.rings if ring.tensor is not CREDIT)
