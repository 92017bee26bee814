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
    findings: Findings, words: Sequence[str], notes: Sequence[str], summary: RunSummary | None
) -> dict[str, Any]:
    """Return a trace as plain values, for ``trace --json``; times are in milliseconds."""
    limit, span = findings.limit, findings.span
    return {
        "words": list(words),
        "notes": list(notes),
        "limit": {
            "kind": limit.kind,
            "share": findings.limit_share,
            "ranks": list(limit.ranks),
            "channels": list(findings.channels),
        },
        "period_ms": span.period_ms,
        "clock_error_us": [
            None if not np.isfinite(error) else error / 1e3
            for error in findings.journeys.trace.error_ns
        ],
        "critical_path": [
            {
                "what": part.activity.value,
                "rank": part.rank if part.rank != NEVER else None,
                "channel": part.channel if part.channel != NEVER else None,
                "share": share,
            }
            for part, share in sorted(findings.path.shares.items(), key=lambda item: -item[1])
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
            for use in findings.ranks
        ],
        "run": summary.to_json() if summary is not None else None,
        "frames": [_frame(findings.journeys, place) for place in range(findings.journeys.frames)],
    }


def _frame(journeys: Journeys, place: int) -> dict[str, Any]:
    """Return the journey of a frame; its times count from its arrival, or its first step."""
    rows = [row for row in range(len(journeys.rows)) if journeys.ends[row, place] > NEVER]
    begins = [int(journeys.begins[row, place]) for row in rows]
    arrived = int(journeys.arrived[place])
    zero = arrived if arrived > NEVER else min(begins, default=0)

    def since(time_ns: int) -> float | None:
        return (time_ns - zero) / 1e6 if time_ns > NEVER else None

    return {
        "frame": journeys.first + place,
        "out_ms": since(int(journeys.out[place])),
        "steps": [
            {
                "what": _KINDS[journeys.rows[row].kind],
                "rank": journeys.rows[row].rank,
                "number": journeys.rows[row].number,
                "begin_ms": since(int(journeys.begins[row, place])),
                "end_ms": since(int(journeys.ends[row, place])),
                "after": _after(journeys, row, place),
            }
            for row in sorted(rows, key=lambda row: int(journeys.begins[row, place]))
        ],
    }


def _after(journeys: Journeys, row: int, place: int) -> str | None:
    last = max(journeys.causes[row], key=lambda cause: int(cause.times[place]))
    return last.reason.value if last.times[place] > NEVER else None
