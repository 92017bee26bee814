"""What limits a job, told from traces with known times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from traces import Times, chain_findings, chain_trace

from rankslice.backend.runtime.figures.events import COMPUTE, FRAME, READ, RECEIVE
from rankslice.backend.runtime.job import ALL, Turns
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.trace.journeys import NEVER, Reason, Stretch, journeys, stretches_of
from rankslice.measurement.trace.path import (
    Activity,
    Part,
    Span,
    critical_path,
    steady_span,
    uses,
    whole_span,
)
from rankslice.measurement.trace.trace_events import EVENTS, RankEvents, Trace
from rankslice.measurement.trace.trace_findings import findings
from rankslice.views.content import Table
from rankslice.views.trace_page import ranks_section, trace_page
from rankslice.views.trace_timeline import timeline


@pytest.mark.parametrize(
    ("times", "kind", "ranks", "words"),
    [
        (
            Times(compute=(6, 2)),
            "rank",
            (0,),
            "rank 0 (one_cpu0) computes 5.93 ms of the 6 ms per frame",
        ),
        (
            Times(compute=(2, 6)),
            "rank",
            (1,),
            "rank 1 (two_cpu0) computes 6 ms of the 6 ms per frame",
        ),
        (
            Times(compute=(2, 6), direct=True),
            "rank",
            (1,),
            "rank 1 (one_cpu1) computes 6 ms",
        ),
        (
            Times(link=7),
            "link",
            (0, 1),
            "the link from one to two: 't0' is in transit for 6.93 ms",
        ),
        (Times(window=1), "window", (), "the window: of 1 frame inside"),
        (Times(window=1, direct=True), "window", (), "the window: of 1 frame"),
        (
            Times(arrivals=9),
            "source",
            (),
            "the source: no frame has come for",
        ),
        (Times(read=8), "source", (0,), "the source: reading frames takes"),
        (Times(compute=(6, 6)), "rank", (0, 1), "ranks 0 and 1 compute 6 ms of the 6 ms per frame"),
    ],
)
def test_the_words_name_what_limits(
    times: Times, kind: str, ranks: tuple[int, ...], words: str
) -> None:
    shown = chain_findings(times)
    assert (kind, ranks) == (shown.limit.kind, shown.limit.ranks)
    assert shown.bottleneck.startswith(words)


@pytest.mark.parametrize("times", [Times(read=8), Times(compute=(6, 2)), Times(link=7)])
def test_a_row_of_the_table_accounts_for_all_the_time(times: Times) -> None:
    (table,) = ranks_section(chain_findings(times)).parts
    assert isinstance(table, Table)
    for row in table.rows:
        *parts, _ = (int(cell.removesuffix(" %")) for cell in row[2:])
        assert 100 == pytest.approx(sum(parts), abs=len(parts) / 2)


def test_a_slow_rank_that_waits_for_a_small_window_is_not_blamed_alone() -> None:
    limit = chain_findings(Times(compute=(3, 6), window=1)).limit
    assert "window" == limit.kind
    assert "rank" == chain_findings(Times(compute=(0.3, 6), window=1)).limit.kind


def test_waits_have_their_reasons_and_shares() -> None:
    shown = chain_findings(Times(compute=(2, 2), link=8))
    receiver = shown.ranks[1]
    (wait,) = receiver.waits
    assert (Reason.input, "t0", 0, 1) == (wait.reason, wait.tensor, wait.rank, wait.channel)
    # A message comes every 8 ms, and is computed for 2 ms.
    assert 0.75 == pytest.approx(wait.share, abs=0.01)
    assert 0.75 == pytest.approx(wait.on_the_way, abs=0.01)
    assert 0.25 == pytest.approx(receiver.compute, abs=0.01)
    assert (
        "rank 1 waits 75 % of the time for rank 0's tensor 't0', 75 % while it is in transit"
        in (shown.waits)
    )
    sender = shown.ranks[0]
    assert 1 == pytest.approx(sender.send, abs=0.01)
    assert {Reason.room} == {each.reason for each in sender.waits[:1]}


@pytest.mark.parametrize(
    ("compute", "goes_on_at_once"),
    [
        ((6.3, 6), True),  # after a gap of less than a tenth of the step
        ((7, 6), False),
        ((0.12, 0.1), True),  # of less than 30 us
        ((0.14, 0.1), False),
    ],
)
def test_a_thread_that_goes_on_at_once_has_waited_for_nothing(
    compute: tuple[float, float], goes_on_at_once: bool
) -> None:
    shares = chain_findings(Times(compute=compute, read=0.01, direct=True)).path.shares
    assert goes_on_at_once == (shares.get(Part(Activity.rank, 1), 0.0) > 0.9)


def test_room_for_a_frame_comes_from_the_one_a_rings_depth_before_it() -> None:
    all_journeys = journeys(chain_trace(Times(compute=(2, 6), direct=True)), 4)
    (row,) = (
        n for n, each in enumerate(all_journeys.rows) if (each.kind, each.rank) == (COMPUTE, 0)
    )
    (room,) = (cause for cause in all_journeys.causes[row] if cause.reason is Reason.room)
    frames, depth = np.arange(all_journeys.frames), 3  # the maker, a hop and the reader have one
    assert np.where(frames >= depth, frames - depth, NEVER).tolist() == room.frames.tolist()


@pytest.mark.parametrize(
    ("turns", "fewer"),
    [(ALL, "fewer layers there"), (Turns(2, (0,)), "fewer layers or frames there")],
)
def test_a_slow_rank_is_to_have_fewer_layers_or_if_it_takes_turns_frames(
    turns: Turns, fewer: str
) -> None:
    trace = chain_trace(Times(compute=(2, 6)))
    shown = journeys(trace, 4)
    span = steady_span(shown)
    assert span is not None
    first, second = trace.plan.ranks
    plan = trace.plan.with_ranks([first, replace(second, turns=turns)])
    text = findings(replace(shown, plan=plan), span).bottleneck
    assert text.endswith(f" per frame; {fewer} would make it faster")


def test_shares_of_the_critical_path_add_up() -> None:
    for times in (Times(), Times(link=5), Times(window=1), Times(arrivals=7)):
        path = chain_findings(times).path
        assert 1 == pytest.approx(sum(path.shares.values()))


def test_a_message_that_came_while_the_rank_computed_is_not_what_it_waited_for() -> None:
    # The receiver takes note of messages between its steps alone.
    trace = chain_trace(Times(compute=(2, 6)))
    receiver = trace.ranks[1]
    events = receiver.events.copy()
    received, computed = events["kind"] == RECEIVE, events["kind"] == COMPUTE
    noted = np.maximum(events["end_ns"][received][1:], events["end_ns"][computed][:-1] + 10_000)
    for field in ("begin_ns", "end_ns"):
        events[field][np.flatnonzero(received)[1:]] = noted
    changed = Trace(trace.plan, (trace.ranks[0], RankEvents(1, events, 0)))
    all_journeys = journeys(changed, 4)
    span = steady_span(all_journeys)
    assert span is not None
    path = critical_path(all_journeys, span)
    assert Activity.rank is max(path.shares.items(), key=lambda each: each[1])[0].activity


def test_frames_before_the_oldest_event_are_left_out() -> None:
    trace = chain_trace(Times(compute=(6, 2)), 100)
    # Each rank has kept its last events, which are of other frames on each.
    ranks = tuple(
        RankEvents(rank.rank, rank.events[-60 - 20 * rank.rank :], 100) for rank in trace.ranks
    )
    all_journeys = journeys(Trace(trace.plan, ranks), 4)
    assert 100 == all_journeys.first + all_journeys.frames
    span = steady_span(all_journeys)
    assert span is not None
    assert ("rank", (0,)) == (
        (limit := findings(all_journeys, span).limit).kind,
        limit.ranks,
    )


def test_a_rank_without_events_is_no_hindrance() -> None:
    trace = chain_trace(Times(compute=(2, 6)))
    silent = RankEvents(0, trace.ranks[0].events[:0], None)
    all_journeys = journeys(Trace(trace.plan, (silent, trace.ranks[1])))
    span = steady_span(all_journeys)
    assert span is not None
    assert 0 == uses(all_journeys, span)[0].compute
    assert (1,) == findings(all_journeys, span).limit.ranks


def test_nothing_is_told_of_no_events() -> None:
    trace = chain_trace(Times())
    silent = tuple(RankEvents(rank.rank, rank.events[:0], None) for rank in trace.ranks)
    with pytest.raises(RankSliceError, match="has no events"):
        journeys(Trace(trace.plan, silent))


def test_clocks_that_disagree_lead_to_an_end() -> None:
    trace = chain_trace(Times(link=1))
    events = trace.ranks[1].events.copy()
    for field in ("begin_ns", "end_ns"):
        events[field] -= 30_000_000
    all_journeys = journeys(Trace(trace.plan, (trace.ranks[0], RankEvents(1, events, 0))))
    span = steady_span(all_journeys)
    assert span is not None
    shares = critical_path(all_journeys, span).shares
    assert 1.0001 > sum(shares.values())


def test_a_span_of_few_frames_is_all_of_them() -> None:
    all_journeys = journeys(chain_trace(Times(), 5), 4)
    assert 4 == (steady_span(all_journeys) or Span(0, 0, 0)).frames
    assert None is steady_span(journeys(chain_trace(Times(), 1), 4))


def test_frames_of_a_route_are_counted_as_it_counts() -> None:
    """Frames 10 to 14 take the other route; 40 came in and have not come out."""
    events = np.zeros(41 + 38, EVENTS)
    events["kind"][:41], events["kind"][41:] = READ, FRAME
    events["frame"] = [*range(41), *range(2, 40)]
    events["route"] = (events["frame"] >= 10) & (events["frame"] < 15)
    before = np.where(events["route"], 10, np.where(events["frame"] < 15, 0, 5))
    events["number"] = np.where(events["kind"] == FRAME, events["frame"] - before, 0)
    trace = chain_trace(Times())
    stretches = stretches_of(Trace(trace.plan, (RankEvents(0, events, 0), trace.ranks[1])))
    assert [Stretch(0, 2, 10, 2), Stretch(1, 10, 15, 0), Stretch(0, 15, 41, 10)] == stretches
    assert 5 == stretches[2].shift


def test_of_a_job_without_results_there_is_what_its_ranks_did() -> None:
    trace = chain_trace(Times(compute=(6, 2)))
    silent = RankEvents(1, trace.ranks[1].events[:0], None)
    all_journeys = journeys(Trace(trace.plan, (trace.ranks[0], silent)))
    assert steady_span(all_journeys) is None
    shown = findings(all_journeys, whole_span(all_journeys))
    assert "nothing" == shown.limit.kind
    assert 0.9 < shown.ranks[0].compute
    assert 2 * 40 < len(timeline(shown).slices)
    assert "came out" not in trace_page(shown, timeline(shown), ())
