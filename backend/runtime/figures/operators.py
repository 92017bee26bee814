"""When each operator of a segment ran, as its engine tells: read from its profile, kept in a file.

It needs only the standard library, as launchers load it alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = "rankslice-operators"
VERSION = 1
NAME = "operators-"
"""Of a rank's file, before the number of the rank."""
MOST_SPANS = 200_000
"""Of operators, that a rank keeps: the last ones."""
MOST_BYTES = 64 << 20
"""Of a file."""

_NODE_SUFFIX = "_kernel_time"
_RUN = "model_run"


@dataclass(frozen=True)
class OperatorSpans:
    """Spans of one segment in microseconds, since a moment that is the engine's own."""

    names: list[str]
    """Of operators: kind and name of the node."""
    spans: list[tuple[int, int, int]]
    """Place in the names, begin, duration."""
    runs: list[tuple[int, int]]
    """Begin and duration of each run of the segment, in order."""


def read_profile(path: Path) -> OperatorSpans:
    """Return what a profile of onnxruntime says.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    names: dict[str, int] = {}
    spans, runs = [], []
    for event in json.loads(path.read_bytes()):
        if event.get("cat") == "Session" and event.get("name") == _RUN:
            runs.append((int(event["ts"]), int(event["dur"])))
        elif event.get("cat") == "Node" and str(event.get("name")).endswith(_NODE_SUFFIX):
            kind = str(event.get("args", {}).get("op_name", ""))
            name = f"{kind} {event['name'].removesuffix(_NODE_SUFFIX)}".strip()
            place = names.setdefault(name, len(names))
            spans.append((place, int(event["ts"]), int(event["dur"])))
    return OperatorSpans(list(names), spans[-MOST_SPANS:], runs)


def write_operators(
    folder: Path, rank: int, plan_sha256: str, segments: Mapping[int, OperatorSpans]
) -> None:
    """Write the file of a rank.

    Args:
        folder: where.
        rank: whose it is.
        plan_sha256: hash of the plan's file.
        segments: by their numbers in the rank; those are left out whose engine tells nothing.

    Raises:
        OSError: it cannot be written.
    """
    record: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "plan": plan_sha256,
        "rank": rank,
        "segments": [{"index": index, **asdict(found)} for index, found in segments.items()],
    }
    text = json.dumps(record, separators=(",", ":"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(folder / f"{NAME}{rank}", flags, 0o600), "w") as file:
        file.write(text)
