"""A trace as plain values: what limits, what ranks did, and the journey of each frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankslice.backend.runtime.figures.events import COMPUTE, READ, RECEIVE, SEND, WRITE
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.trace.journeys import NEVER, Journeys
from rankslice.measurement.trace.trace_findings import Findings

_KINDS = {COMPUTE: "segment", READ: "read", WRITE: "write", SEND: "send", RECEIVE: "receive"}


def journeys_json(
    found: Findings, words: Sequence[str], notes: Sequence[str], summary: RunSummary | None
) -> dict[str, Any]:
    """Return a trace as plain values, for ``trace --json``; times are in milliseconds."""
    limit, span = found.limit, found.span
    return {
        "words": list(words),
        "notes": list(notes),
        "limit": {
            "kind": limit.kind,
            "share": found.limit_share,
            "ranks": list(limit.ranks),
            "channels": list(found.channels),
        },
        "period_ms": span.period_ms,
        "clock_error_us": [
            None if not np.isfinite(error) else error / 1e3
            for error in found.journeys.trace.error_ns
        ],
        "critical_path": [
            {
                "what": part.activity.value,
                "rank": part.rank if part.rank != NEVER else None,
                "channel": part.channel if part.channel != NEVER else None,
                "share": share,
            }
            for part, share in sorted(found.path.shares.items(), key=lambda each: -each[1])
        ],
        "ranks": [
            {
                "rank": use.rank,
                "compute": use.compute,
                "compute_ms": use.compute_ms,
                "read_and_write": use.ends,
                "send": use.send,
                "rest": use.rest,
                "waits": [
                    {
                        "for": wait.reason.value,
                        "share": wait.share,
                        "tensor": wait.tensor or None,
                        "rank": wait.rank if wait.rank != NEVER else None,
                        "channel": wait.channel if wait.channel != NEVER else None,
                        "on_the_way": wait.on_the_way,
                    }
                    for wait in use.waits
                ],
            }
            for use in found.ranks
        ],
        "run": summary.to_json() if summary is not None else None,
        "frames": [_frame(found.journeys, place) for place in range(found.journeys.frames)],
    }


def _frame(found: Journeys, place: int) -> dict[str, Any]:
    """Return the journey of a frame; its times count from its arrival, or its first step."""
    rows = [row for row in range(len(found.rows)) if found.ends[row, place] > NEVER]
    begins = [int(found.begins[row, place]) for row in rows]
    arrived = int(found.arrived[place])
    zero = arrived if arrived > NEVER else min(begins, default=0)

    def since(time_ns: int) -> float | None:
        return (time_ns - zero) / 1e6 if time_ns > NEVER else None

    return {
        "frame": found.first + place,
        "out_ms": since(int(found.out[place])),
        "steps": [
            {
                "what": _KINDS[found.rows[row].kind],
                "rank": found.rows[row].rank,
                "number": found.rows[row].number,
                "begin_ms": since(int(found.begins[row, place])),
                "end_ms": since(int(found.ends[row, place])),
                "after": _after(found, row, place),
            }
            for row in sorted(rows, key=lambda row: int(found.begins[row, place]))
        ],
    }


def _after(found: Journeys, row: int, place: int) -> str | None:
    last = max(found.causes[row], key=lambda each: int(each.times[place]))
    return last.reason.value if last.times[place] > NEVER else None
