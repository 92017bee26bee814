"""When operators ran: the engine's clock is another one than that of the steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import chain_plan

from rankslice.backend.runtime.figures.operators import (
    OperatorSpans,
    read_profile,
    write_operators,
)
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.trace.operators import (
    SegmentOperators,
    operator_steps,
    read_operators,
)

PLAN_SHA256 = "5" * 64
OFFSET_US = 77_000_000
"""By how much the engine's clock is behind."""


def event(category: str, name: str, begin: int, duration: int, kind: str = "") -> dict[str, Any]:
    args = {"op_name": kind} if kind else {}
    return {"cat": category, "name": name, "ts": begin, "dur": duration, "args": args}


def test_operators_and_runs_are_taken_from_a_profile(tmp_path: Path) -> None:
    profile = [
        event("Session", "session_initialization", 0, 50),
        event("Node", "conv1_kernel_time", 110, 20, "Conv"),
        event("Node", "conv1_fence_before", 109, 1, "Conv"),
        event("Node", "relu_kernel_time", 131, 5, "Relu"),
        event("Session", "model_run", 100, 40),
        event("Node", "conv1_kernel_time", 210, 21, "Conv"),
        event("Session", "model_run", 200, 40),
    ]
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    found = read_profile(tmp_path / "profile.json")
    assert ["Conv conv1", "Relu relu"] == found.names
    assert [(0, 110, 20), (1, 131, 5), (0, 210, 21)] == found.spans
    assert [(100, 40), (200, 40)] == found.runs


def test_operators_are_brought_to_the_clock_of_their_steps() -> None:
    # The first run is the warm-up, which is no step; steps begin 30 us before their runs.
    begins_us = np.array([1000, 2000, 3000])
    runs = tuple((OFFSET_US + begin, 500) for begin in (100, *(begins_us + 30)))
    spans = tuple((0, begin + 100, 200) for begin, _ in runs)
    segment = SegmentOperators(index=0, names=("Conv conv1",), spans=spans, runs=runs)
    begins, ends = 1000 * begins_us, 1000 * (begins_us + 560)
    steps = [*operator_steps(segment, begins, ends)]
    assert [0, 1, 2] == [step.frame for step in steps]
    assert {"Conv conv1"} == {step.name for step in steps}
    # The run has 60 us of room in its step: its place is known to half of that.
    for step, begin in zip(steps, begins_us, strict=True):
        assert abs(step.begin_ns / 1000 - (begin + 130)) <= 30
        assert 200_000 == step.end_ns - step.begin_ns


def test_runs_stay_in_their_steps_though_clocks_drift() -> None:
    begins_us = 1000 * np.arange(50)
    runs = tuple((OFFSET_US + int(begin * 1.01) + 5, 800) for begin in begins_us)
    spans = tuple((0, begin, 800) for begin, _ in runs)
    segment = SegmentOperators(index=0, names=("a",), spans=spans, runs=runs)
    for step in operator_steps(segment, 1000 * begins_us, 1000 * (begins_us + 810)):
        begin = 1_000_000 * step.frame
        assert begin <= step.begin_ns < step.end_ns <= begin + 810_000


def written(folder: Path) -> dict[str, Any]:
    spans = OperatorSpans(["Conv conv1"], [(0, 110, 20)], [(100, 40)])
    write_operators(folder, 0, PLAN_SHA256, {0: spans})
    write_operators(folder, 1, PLAN_SHA256, {})
    return json.loads((folder / "operators-0").read_text())


def test_what_a_rank_writes_is_read(tmp_path: Path) -> None:
    written(tmp_path)
    first, second = read_operators(tmp_path, chain_plan(), PLAN_SHA256)
    assert ((0, 110, 20),) == first.segments[0].spans
    assert () == second.segments


@pytest.mark.parametrize(
    "change",
    [
        {"plan": "6" * 64},
        {"rank": 1},
        {"version": 2},
        {"format": "else"},
        {"more": 1},
        {"segments": [{"index": 0, "names": [], "spans": [[0, 1, 2]], "runs": []}]},
        {"segments": [{"index": 0, "names": ["a"], "spans": [[0, -1, 2]], "runs": []}]},
        {"segments": [{"index": 0, "names": ["a"], "spans": [[0, 1, 1 << 60]], "runs": []}]},
        {"segments": [{"index": 0, "names": [7], "spans": [], "runs": []}]},
    ],
)
def test_another_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    record = written(tmp_path)
    (tmp_path / "operators-0").write_text(json.dumps({**record, **change}))
    with pytest.raises(RankSliceError, match="operators-0"):
        read_operators(tmp_path, chain_plan(), PLAN_SHA256)


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"\x00" * 9, None])
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes | None) -> None:
    written(tmp_path)
    if content is None:
        (tmp_path / "operators-0").unlink()
    else:
        (tmp_path / "operators-0").write_bytes(content)
    with pytest.raises(RankSliceError, match="operators-0"):
        read_operators(tmp_path, chain_plan(), PLAN_SHA256)
