"""Traces of jobs that never ran: a chain of two ranks, with known times."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from line_graphs import line_graph
from placements import placements
from plans import planned

from rankslice.backend.runtime.figures.events import (
    COMPUTE,
    FRAME,
    READ,
    RECEIVE,
    SEND,
    WAIT,
    WRITE,
)
from rankslice.framework.plan import Plan
from rankslice.measurement.trace.journeys import journeys
from rankslice.measurement.trace.path import steady_span
from rankslice.measurement.trace.trace_events import EVENTS, RankEvents, Trace
from rankslice.measurement.trace.trace_findings import Findings, findings

CHAIN = "L0: x -> t0\nL1: t0 -> y"
SOURCE_THREAD, SINK_THREAD = 1, 2
_MS = 1_000_000
_START_NS = 1_000 * _MS


@dataclass(frozen=True)
class Times:
    """Of a chain of two ranks, in milliseconds."""

    compute: tuple[float, float] = (2, 2)
    link: float = 0.1
    read: float = 0.1
    arrivals: float = 0.0
    """Between two frames; 0: they come as fast as they are taken."""
    window: int = 4
    direct: bool = False
    """Both ranks are on one board."""


def chain_plan(*, direct: bool = False) -> Plan:
    graph = line_graph(CHAIN, outputs="y")
    places = placements("one_cpu0", "one_cpu1" if direct else "two_cpu0")
    return planned(graph, {"L0": 0, "L1": 1}, places)


def chain_trace(times: Times, frames: int = 40) -> Trace:
    """Return what two ranks would have done."""
    events: tuple[list[tuple[int, ...]], ...] = ([], [])
    read, made, there, done = ([0.0] * frames for _ in range(4))
    out = [0.0] * frames

    def before(values: list[float], frame: int, by: int = 1) -> float:
        return values[frame - by] if frame >= by else 0.0

    def add(
        rank: int, kind: int, begin: float, end: float, frame: int, number: int = 0, thread: int = 0
    ) -> None:
        span = (_START_NS + round(begin * _MS), _START_NS + round(end * _MS))
        events[rank].append((*span, frame, kind, 0, thread, number))

    for f in range(frames):
        arrived = f * times.arrivals
        seen = arrived + 0.01 if times.arrivals else 0.0
        begin = max(seen, before(read, f), before(out, f, times.window), before(made, f, 2))
        read[f] = begin + times.read
        add(0, READ, begin, read[f], f, thread=SOURCE_THREAD)
        begin = max(read[f], before(made, f), before(done if times.direct else there, f, 2))
        if begin > before(made, f):
            add(0, WAIT, before(made, f), begin, f)
        made[f] = begin + times.compute[0]
        add(0, COMPUTE, begin, made[f], f)
        if times.direct:
            there[f] = made[f]
        else:
            begin = max(made[f], before(there, f), before(done, f, 2))
            there[f] = begin + times.link
            add(0, SEND, made[f], there[f], f, number=1)
            add(1, RECEIVE, there[f], there[f], f, number=1)
        begin = max(there[f], before(done, f))
        if begin > before(done, f):
            add(1, WAIT, before(done, f), begin, f)
        done[f] = begin + times.compute[1]
        add(1, COMPUTE, begin, done[f], f)
        out[f] = done[f] + 0.05
        add(1, WRITE, done[f], out[f], f, thread=SINK_THREAD)
        add(0, FRAME, arrived if times.arrivals else read[f] - times.read, out[f], f)
    plan = chain_plan(direct=times.direct)
    return Trace(plan, tuple(_rank(rank, own) for rank, own in enumerate(events)))


def _rank(rank: int, events: list[tuple[int, ...]]) -> RankEvents:
    in_array = np.array(events, EVENTS)
    return RankEvents(rank, in_array[np.argsort(in_array["end_ns"], kind="stable")], 0)


def chain_findings(times: Times, frames: int = 40) -> Findings:
    """Return what the steady state of such a trace shows."""
    all_journeys = journeys(chain_trace(times, frames), times.window)
    span = steady_span(all_journeys)
    assert span is not None
    return findings(all_journeys, span)


class DrawnSlice(NamedTuple):
    """A slice on a page."""

    rank: int
    name: str
    frame: int
    kind: str


def trace_in(page: str) -> dict[str, Any]:
    """Return the data that the script of a page draws."""
    block = re.search(r'<script[^>]* id="trace"[^>]*>(.*?)</script>', page)
    assert block is not None
    data: dict[str, Any] = json.loads(block[1])
    return data


def slices_on(page: Path) -> list[DrawnSlice]:
    data = trace_in(page.read_text())
    columns = zip(data["track"], data["name"], data["frame"], data["kind"], strict=True)
    return [
        DrawnSlice(data["tracks"][track]["rank"], data["names"][name], frame, data["kinds"][kind])
        for track, name, frame, kind in columns
    ]
