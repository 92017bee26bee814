"""What is drawn of a trace: for Perfetto, and on the page."""

from __future__ import annotations

import builtins
import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from traces import Times, chain_findings, chain_trace, trace_in

from rankslice.backend.runtime.figures.events import SEND, WAIT
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.output_file import PERFETTO
from rankslice.measurement.board_history import BoardHistory
from rankslice.measurement.trace.clocks import Clock
from rankslice.measurement.trace.journeys import journeys
from rankslice.measurement.trace.path import whole_span
from rankslice.measurement.trace.trace_events import on_one_clock
from rankslice.measurement.trace.trace_findings import Findings, findings
from rankslice.views.board_charts import counters_of
from rankslice.views.perfetto_file import check_perfetto, perfetto_bytes
from rankslice.views.trace_page import trace_page
from rankslice.views.trace_timeline import MESSAGE, WAITING, WORK, Timeline, timeline

FRAMES = 30


@pytest.fixture(scope="module")
def steady() -> Findings:
    return chain_findings(Times(compute=(2, 3), link=4), FRAMES)


@pytest.fixture(scope="module")
def drawn(steady: Findings) -> Timeline:
    return timeline(steady)


@pytest.fixture(scope="module")
def packets(steady: Findings, drawn: Timeline) -> Any:
    trace = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    file = trace.Trace()
    content = perfetto_bytes(steady, drawn)
    file.ParseFromString(content)
    assert PERFETTO.beginning.match(content.lstrip())
    return file.packet


def test_all_events_are_drawn_and_slices_of_a_track_do_not_overlap(
    steady: Findings, drawn: Timeline
) -> None:
    kinds = Counter(step.kind for step in drawn.slices)
    events = steady.journeys.trace.ranks
    assert kinds[WORK] == 4 * FRAMES  # read, two segments, write
    assert kinds[MESSAGE] == 2 * FRAMES
    assert kinds[WAITING] == sum(len(rank.of(WAIT)) for rank in events) > 0
    ends: dict[int, int] = {}
    for step in drawn.slices:
        assert ends.get(step.track, 0) <= step.begin_ns
        ends[step.track] = step.end_ns
    assert 0 == drawn.inside[-1][1]
    assert 4 == max(count for _, count in drawn.inside)


def test_events_of_steps_that_the_plan_lacks_are_left_out() -> None:
    trace = chain_trace(Times(), FRAMES)
    damaged = []
    for rank in trace.ranks:
        events = rank.events.copy()
        events["number"][::3] += 7
        events["kind"][1::3] = SEND
        damaged.append(replace(rank, events=events))
    placed = on_one_clock(trace.plan, damaged, {})
    assert 0 < sum(len(rank.events) for rank in placed.ranks) < sum(len(r.events) for r in damaged)
    all_journeys = journeys(placed)
    timeline(findings(all_journeys, whole_span(all_journeys)))


def test_perfetto_has_what_boards_were_like_on_the_clock_of_the_trace(
    steady: Findings, drawn: Timeline
) -> None:
    trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = steady.journeys.trace
    ahead = replace(trace.ranks[1], clock=Clock(offset_ns=500))
    series = {"temperature_c.cpu": (40.0, math.nan, 41.5), "memory_mb.rank1": (1.0, 2.0, 3.0)}
    begin_ns = drawn.slices[0].begin_ns
    times = begin_ns - 1500, begin_ns - 800, begin_ns + 1000
    boards = ("one", "two", "elsewhere")
    histories = [BoardHistory(board, times, series, ()) for board in boards]
    counters = counters_of(replace(trace, ranks=(trace.ranks[0], ahead)), histories)
    file = trace_pb2.Trace()
    file.ParseFromString(perfetto_bytes(steady, drawn, counters))
    names = {
        packet.track_descriptor.uuid: packet.track_descriptor.name
        or packet.track_descriptor.process.process_name
        for packet in file.packet
    }
    tracks = {
        packet.track_descriptor.uuid: (
            packet.machine_id,
            names[packet.track_descriptor.parent_uuid],
            packet.track_descriptor.name,
            packet.track_descriptor.counter.unit_name,
        )
        for packet in file.packet
        if packet.track_descriptor.HasField("counter") and packet.track_descriptor.parent_uuid
    }
    counted: dict[Any, Any] = {}
    for packet in file.packet:
        event = packet.track_event
        if event.HasField("double_counter_value"):
            value = packet.timestamp - begin_ns, event.double_counter_value
            counted.setdefault(tracks[event.track_uuid], []).append(value)
    # The value before the first slice holds there.
    assert {
        (0, "one", "temperature_c.cpu", "°C"): [(0, 40.0), (1000, 41.5)],
        (0, "rank 1 two_cpu0", "memory_mb", "MB"): [(0, 2.0), (1000, 3.0)],
        (1, "two", "temperature_c.cpu", "°C"): [(0, 40.0), (1500, 41.5)],
        (1, "rank 1 two_cpu0", "memory_mb", "MB"): [(0, 2.0), (1500, 3.0)],
    } == counted


def test_perfetto_has_a_machine_a_board_and_a_process_a_rank(packets: Any) -> None:
    machines = {
        packet.system_info.machine_name: packet.machine_id
        for packet in packets
        if packet.HasField("system_info")
    }
    assert {"one": 0, "two": 1} == machines
    processes = {
        packet.track_descriptor.process.process_name: packet.machine_id
        for packet in packets
        if packet.track_descriptor.HasField("process")
    }
    assert {"rank 0 one_cpu0": 0, "rank 1 two_cpu0": 1} == processes
    threads = [
        packet.track_descriptor.thread.thread_name
        for packet in packets
        if packet.track_descriptor.HasField("thread")
    ]
    assert ["compute", "source", "compute", "sink"] == threads


def test_perfetto_has_every_slice_with_its_name_and_frame(packets: Any, drawn: Timeline) -> None:
    events = [packet.track_event for packet in packets if packet.HasField("track_event")]
    begins = [event for event in events if event.type == event.TYPE_SLICE_BEGIN]
    moments = [event for event in events if event.type == event.TYPE_INSTANT]
    assert len(drawn.slices) == len(begins) + len(moments)
    assert len(begins) == sum(event.type == event.TYPE_SLICE_END for event in events)
    names = Counter(event.name for event in begins)
    assert 2 * FRAMES == names["segment 0"]
    assert FRAMES == names["read"] == names["write"] == names["'t0' to rank 1"]
    assert FRAMES == len(moments)
    assert 0 < names["wait for 't0' of rank 0"]
    frames = [
        note.int_value for event in begins for note in event.debug_annotations if note.int_value
    ]
    assert {*range(1, FRAMES)} == {*frames}
    tracks = {packet.track_descriptor.uuid for packet in packets} - {0}
    assert {event.track_uuid for event in events} <= tracks


def test_arrows_lead_from_who_makes_a_tensor_to_who_reads_it(packets: Any) -> None:
    events = [packet.track_event for packet in packets if packet.HasField("track_event")]
    left = {flow for event in events if event.name == "segment 0" for flow in event.flow_ids}
    passed = {flow for event in events if "from rank" in event.name for flow in event.flow_ids}
    ended = {flow for event in events for flow in event.terminating_flow_ids}
    assert FRAMES == len(left)
    assert left == passed == ended


def test_a_counter_tells_how_many_frames_are_inside(packets: Any, drawn: Timeline) -> None:
    counts = [
        (packet.timestamp, packet.track_event.counter_value)
        for packet in packets
        if packet.track_event.type == packet.track_event.TYPE_COUNTER
    ]
    assert [*drawn.inside] == counts


def test_without_the_package_a_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("perfetto"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RankSliceError, match=re.escape("pip install 'rankslice[perfetto]'")):
        check_perfetto("--perfetto")


def test_the_page_has_all_slices_in_columns(steady: Findings, drawn: Timeline) -> None:
    page = trace_page(steady, drawn, ("the link limits",), ("times are exact",))
    record = trace_in(page)
    columns = ("track", "begins", "lengths", "name", "kind", "frame", "critical")
    assert {len(drawn.slices)} == {len(record[column]) for column in columns}
    assert len(drawn.tracks) == len(record["tracks"])
    assert ["one", "two"] == record["boards"]
    assert "The link limits." in page
    assert sum(record["critical"]) > 0
    assert page == trace_page(steady, drawn, ("the link limits",), ("times are exact",))
