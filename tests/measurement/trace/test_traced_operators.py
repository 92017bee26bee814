"""When operators ran, and how long they took: the engine's clock is another one than the steps'."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import chain_plan

from rankslice.backend.runtime.figures.operator_profile import (
    DeviceRuns,
    OperatorSpans,
    RankOperators,
    read_profile,
    write_operators,
)
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.trace.traced_operators import (
    operators_csv,
    place_operators,
    read_operators,
    records_of,
    table_of,
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
    assert ("Conv conv1", "Relu relu") == found.names
    assert ((0, 110, 20), (1, 131, 5), (0, 210, 21)) == found.spans
    assert ((100, 40), (200, 40)) == found.runs


def test_operators_are_brought_to_the_clock_of_their_steps() -> None:
    # The first run is the warm-up, which is no step; steps begin 30 us before their runs.
    begins_us = np.array([1000, 2000, 3000])
    runs = tuple((OFFSET_US + begin, 500) for begin in (100, *(begins_us + 30)))
    spans = tuple((0, begin + 100, 200) for begin, _ in runs)
    segment = OperatorSpans(index=0, names=("Conv conv1",), spans=spans, runs=runs)
    begins, ends = 1000 * begins_us, 1000 * (begins_us + 560)
    (placed,) = place_operators(segment, begins, ends)
    steps = placed.steps
    assert [0, 1, 2] == [step.frame for step in steps]
    assert {"Conv conv1"} == {step.name for step in steps}
    # The run has 60 us of room in its step: its place is known to half of that.
    assert 30_000 <= placed.error_ns < 32_000
    for step, begin in zip(steps, begins_us, strict=True):
        assert abs(step.begin_ns / 1000 - (begin + 130)) <= 30
        assert 200_000 == step.end_ns - step.begin_ns


def test_runs_stay_in_their_steps_though_clocks_drift() -> None:
    begins_us = 1000 * np.arange(50)
    runs = tuple((OFFSET_US + int(begin * 1.01) + 5, 800) for begin in begins_us)
    spans = tuple((0, begin, 800) for begin, _ in runs)
    segment = OperatorSpans(index=0, names=("a",), spans=spans, runs=runs)
    (placed,) = place_operators(segment, 1000 * begins_us, 1000 * (begins_us + 810))
    for step in placed.steps:
        begin = 1_000_000 * step.frame
        assert begin <= step.begin_ns < step.end_ns <= begin + 810_000


def test_kernels_of_a_gpu_are_told_apart_by_runs(tmp_path: Path) -> None:
    def run(begin: int, *, first: bool = False) -> list[dict[str, Any]]:
        queued = event("Node", "conv1_kernel_time", begin, 3, "Conv")
        queued["args"]["provider"] = "CUDAExecutionProvider"
        packing = [event("Kernel", "pack_weights", begin + 4, 1)] if first else []
        kernels = [event("Kernel", name, begin + at, 9) for name, at in [("a", 10), ("b", 20)]]
        return [*packing, event("Session", "model_run", begin, 40), queued, *kernels]

    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps([*run(100, first=True), *run(200), *run(300)]))
    found = read_profile(profile)
    assert "CUDA" == found.queued_by
    assert found.device is not None
    assert ("CUDA", True) == (found.device.by, found.device.has_clock)
    assert ((0, 6000, 9000), (1, 16_000, 9000)) == found.device.runs[0], "since its first event"
    assert 3 == len(found.device.runs)
    # A run with other kernels leaves no way to tell.
    profile.write_text(json.dumps([*run(100), *run(200), *run(300, first=True)]))
    assert read_profile(profile).device is None


QNN = """Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier
0,FINALIZE,9810,US,BACKEND,ROOT,QNN (finalize) time
0,BACKEND,4000,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)
0,NODE,0,CYCLES,BACKEND,SUB-EVENT,Input OpId_2 (cycles)
0,NODE,3000,CYCLES,BACKEND,SUB-EVENT,conv1:OpId_23 (cycles)
0,NODE,1000,CYCLES,BACKEND,SUB-EVENT,relu1:OpId_26 (cycles)
0,BACKEND,40,US,BACKEND,ROOT,Accelerator (execute) time
0,EXECUTE,50,US,BACKEND,ROOT,QNN (execute) time
"""


def test_cycles_of_an_npu_become_times_in_the_middle_of_its_call(tmp_path: Path) -> None:
    call = event("Node", "QNN_1_kernel_time", 110, 60, "QNN_1")
    call["args"]["provider"] = "QNN"
    profile, qnn = tmp_path / "profile.json", tmp_path / "qnn.csv"
    profile.write_text(json.dumps([event("Session", "model_run", 100, 80), call]))
    qnn.write_text(QNN)
    found = read_profile(profile, qnn).device
    assert found is not None
    assert (False, ("conv1", "relu1"), (20_000,)) == (found.has_clock, found.names, found.slack_ns)
    assert (((0, 120_000, 30_000), (1, 150_000, 10_000)),) == found.runs
    qnn.write_text(QNN + QNN.partition("\n")[2])
    assert read_profile(profile, qnn).device is None, "a call has two executions"


@pytest.mark.parametrize("drift", [0.0, 50e-6, -100e-6])
def test_offset_and_drift_of_an_accelerators_clock_are_removed(drift: float) -> None:
    """A GPU whose clock starts at 0 computes for most of a step, at no fixed time in it."""
    random = np.random.default_rng(1)
    begins = 10**9 + 10_000_000 * np.arange(1000)
    before, after = 20_000 + random.exponential(30e3, (2, len(begins))).astype(np.int64)
    kernels = begins + before
    ends = kernels + 8_000_000 + after
    there = np.rint((kernels - kernels[0]) * (1 + drift)).astype(np.int64)
    runs = tuple(((0, begin, 5_000_000), (1, begin + 5_000_000, 3_000_000)) for begin in there)
    device = DeviceRuns(
        by="WebGpu", has_clock=True, names=("a", "b"), runs=runs, slack_ns=(0,) * len(runs)
    )
    engine = tuple((int(begin) // 1000 + 5, 100) for begin in begins)
    segment = OperatorSpans(index=0, names=(), spans=(), runs=engine, device=device)
    _, placed = place_operators(segment, begins, ends)
    assert "WebGpu" == placed.by
    assert 2 * len(begins) == len(placed.steps)
    found = np.array([step.begin_ns for step in placed.steps if step.name == "a"])
    assert np.abs(found - kernels).max() <= placed.error_ns < 50_000


def test_runs_that_are_longer_than_their_steps_place_nothing() -> None:
    begins = 1_000_000 * np.arange(10)
    runs = tuple((int(begin) // 1000, 900) for begin in begins)
    spans = tuple((0, begin, 10) for begin, _ in runs)
    segment = OperatorSpans(index=0, names=("a",), spans=spans, runs=runs)
    assert [] == [*place_operators(segment, begins, begins + 800_000)]
    (placed,) = place_operators(segment, begins, begins + np.where(begins, 800_000, 920_000))
    assert 10_000 <= placed.error_ns < math.inf


def written(folder: Path) -> dict[str, Any]:
    spans = OperatorSpans(("Conv conv1",), ((0, 110, 20),), ((100, 40),))
    write_operators(folder, RankOperators(0, PLAN_SHA256, (spans,)))
    write_operators(folder, RankOperators(1, PLAN_SHA256, ()))
    return json.loads((folder / "operators-0").read_text())


def test_what_a_rank_writes_is_read(tmp_path: Path) -> None:
    written(tmp_path)
    first, second = read_operators(tmp_path, chain_plan(), PLAN_SHA256)
    assert ((0, 110, 20),) == first.segments[0].spans
    assert () == second.segments


@pytest.mark.parametrize(
    "change",
    [
        {"job_sha256": "6" * 64},
        {"rank": 1},
        {"version": 1},
        {"format": "else"},
        {"more": 1},
    ],
)
def test_another_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    record = written(tmp_path)
    (tmp_path / "operators-0").write_text(json.dumps({**record, **change}))
    with pytest.raises(RankSliceError, match="operators-0"):
        read_operators(tmp_path, chain_plan(), PLAN_SHA256)


DEVICE = {"by": "CUDA", "has_clock": True, "names": ["a"], "runs": [[[0, 1, 2]]], "slack_ns": [0]}


@pytest.mark.parametrize(
    "change",
    [
        {"names": []},
        {"spans": [[0, -1, 2]]},
        {"spans": [[0, 1, 1 << 60]]},
        {"spans": [[0, 1]]},
        {"runs": [[100, 40, 0]]},
        {"names": [7]},
        {"device": {**DEVICE, "names": []}},
        {"device": {**DEVICE, "slack_ns": []}},
        {"device": {**DEVICE, "slack_ns": [-1]}},
    ],
)
def test_a_segment_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    record = written(tmp_path)
    (segment,) = record["segments"]
    for told, is_sound in (({"device": DEVICE}, True), (change, False)):
        text = json.dumps({**record, "segments": [{**segment, **told}]})
        (tmp_path / "operators-0").write_text(text)
        if is_sound:
            assert 2 == len(read_operators(tmp_path, chain_plan(), PLAN_SHA256))
            continue
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


RUNS = ((0, 100), (200, 100))
CPU = OperatorSpans(
    names=("Conv a", "Relu b"),
    spans=((0, 10, 20), (1, 30, 4), (0, 210, 40), (1, 250, 4)),
    runs=RUNS,
    shapes=("1x2, 2x2 -> 1x2", ""),
    kernels=("CPU", "CPU"),
)
QUEUED = OperatorSpans(
    names=("Conv a",),
    spans=((0, 10, 1), (0, 210, 1)),
    runs=RUNS,
    device=DeviceRuns("WebGpu", True, ("conv2d a",), (((0, 5, 7000),), ((0, 9, 9000),)), (0, 0)),
    queued_by="WebGpu",
)


def test_rows_have_times_in_milliseconds_where_the_work_was_done() -> None:
    plan = chain_plan()
    operators = [RankOperators(0, "", (CPU,)), RankOperators(1, "", (QUEUED,))]
    rows = list(csv.DictReader(io.StringIO(operators_csv(table_of(plan, operators, 2)))))
    assert [plan.ranks[0].key] * 2 + [plan.ranks[1].key] == [row["accelerator"] for row in rows]
    assert ["Conv a", "Relu b", "conv2d a"] == [row["operator"] for row in rows]
    assert ["0.030000", "0.004000", "0.008000"] == [row["mean_ms"] for row in rows]
    assert ["0.039000", "0.004000", "0.008900"] == [row["p95_ms"] for row in rows]
    assert ["1x2, 2x2 -> 1x2", "", ""] == [row["shapes"] for row in rows]
    assert ["CPU", "CPU", "conv2d a"] == [row["kernel"] for row in rows]


def test_records_have_the_columns_of_the_table_and_leave_the_warm_up_out() -> None:
    (first, _) = records_of(table_of(chain_plan(), [RankOperators(0, "", (CPU,))], 1))
    assert ("Conv a", 1, 0.04) == (first["operator"], first["count"], first["mean_ms"])
