"""What a rank sets up for a plan: rings and their depths, readers, sends, receives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from line_graphs import line_graph
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, job_of, planned, plans

from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.pipeline.wiring import CREDIT, CREDIT_CHANNEL, Wiring, wire, wire_all
from rankslice.framework.plan import Plan


def figure_2() -> Job:
    return job_of(planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS))


SKIP = line_graph("a: x -> s\nb: s -> t\nc: s t -> y", outputs="y")
"""Tensor s skips layer b."""


def depths(wiring: Wiring) -> dict[str, int]:
    return {ring.tensor.name: ring.depth for ring in wiring.rings}


def readers(wiring: Wiring) -> dict[str, int]:
    return {ring.tensor.name: ring.readers for ring in wiring.rings}


def test_a_ring_has_a_slot_more_than_levels_lie_between_writer_and_reader() -> None:
    # Levels: source 0, a 1, hop, b 3, hop, c 5; s is written at 1 and read at 5.
    job = job_of(planned(SKIP, {"a": 0, "b": 1, "c": 0}))
    found = depths(wire(job, 0, 99))
    assert {"x": 1 - 0 + 1, "s": 5 - 1 + 1, "t": 5 - 4 + 1, "y": 6 - 5 + 1} == {
        name: depth for name, depth in found.items() if name != CREDIT.name
    }


def test_a_skip_channel_gets_more_slots_than_the_way_it_skips() -> None:
    # s goes to rank 2 past rank 1; it arrives at level 2 and waits for t until level 5.
    job = job_of(planned(SKIP, {"a": 0, "b": 1, "c": 2}))
    found = depths(wire(job, 2, 99))
    assert 5 - 2 + 1 == found["s"]
    assert 5 - 4 + 1 == found["t"]


def test_no_ring_has_more_slots_than_the_window() -> None:
    job = job_of(planned(SKIP, {"a": 0, "b": 1, "c": 0}))
    assert {1} == set(depths(wire(job, 0, 1)).values())
    assert 3 == max(depths(wire(job, 0, 3)).values())


def test_a_tensor_has_a_reader_for_each_segment_and_each_channel() -> None:
    found = readers(wire(figure_2(), 0, 8))
    assert {"input": 1, "Buff1": 2, "Buff4": 1, "Buff2": 1, "Buff3": 1, CREDIT.name: 1} == found


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
    assert [credit] == [reader.ring for reader in wiring.source.inputs]
    assert CREDIT_CHANNEL not in {end.channel for end in (*wiring.sends, *wiring.receives)}


@given(plans(), st.integers(1, 9))
def test_all_ranks_at_once_are_wired_as_each_wires_itself(plan: Plan, window: int) -> None:
    job = job_of(plan)
    each = tuple(wire(job, rank, window) for rank in range(len(job.ranks)))
    assert each == wire_all(job, window)


@given(plans(), st.integers(1, 9))
def test_every_channel_has_two_ends_of_the_same_tensor(plan: Plan, window: int) -> None:
    job = job_of(plan)
    wirings = wire_all(job, window)
    sends = {
        (s.channel, rank, s.destination, wiring.rings[s.reader.ring].tensor)
        for rank, wiring in enumerate(wirings)
        for s in wiring.sends
    }
    receives = {
        (r.channel, r.sender, rank, wiring.rings[r.ring].tensor)
        for rank, wiring in enumerate(wirings)
        for r in wiring.receives
    }
    assert sends == receives
    assert {channel.number for channel in job.channels} == {end[0] for end in sends} - {0}


@given(plans(), st.integers(1, 9))
def test_every_reader_has_a_place_of_its_own(plan: Plan, window: int) -> None:
    job = job_of(plan)
    for rank in range(len(job.ranks)):
        wiring = wire(job, rank, window)
        taken = [reader for _, stage in wiring.segments for reader in stage.inputs]
        taken += [send.reader for send in wiring.sends]
        for stage in (wiring.source, wiring.sink):
            taken += stage.inputs if stage is not None else ()
        places = sorted((reader.ring, reader.index) for reader in taken)
        assert places == [
            (number, place)
            for number, ring in enumerate(wiring.rings)
            for place in range(ring.readers)
        ]
        assert all(1 <= ring.depth <= window for ring in wiring.rings)
