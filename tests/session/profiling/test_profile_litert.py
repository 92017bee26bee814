"""``rankslice profile`` of a ``.tflite`` model, on LiteRT's CPU, GPU and NPU."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from command_line import succeed
from litert_engines import (
    NPU_ENVIRONMENT,
    NPU_OPTIONS,
    gpu_environment,
    needs_litert,
    needs_openvino,
    needs_swiftshader,
)

from rankslice.exploration.times.span_times import Slice, first_spans
from rankslice.framework.errors import RankSliceError
from rankslice.framework.profile import ProfiledKind
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.profiling.profiler import Profiler

DIGITS = Path(__file__).parents[3] / "models" / "digits.tflite"
CORE = min(os.sched_getaffinity(0))


@pytest.mark.ci
@needs_litert
def test_layers_of_a_tflite_model_are_measured_with_litert() -> None:
    with Profiler(
        DIGITS, "local", None, ProfileOptions(accelerators=(f"local_cpu{CORE}",))
    ) as profiler:
        profiler.measure_first()
    (kind,) = profiler.profile.kinds
    assert "litert" == kind.engine
    assert len(first_spans(profiler.layers)) == len(kind.spans)
    assert all(len(span.samples_ns) >= 5 for span in kind.spans)


@pytest.mark.ci
@needs_litert
@pytest.mark.parametrize("model", ["digits.tflite", "digits.onnx"])
def test_operators_of_the_whole_model_are_measured_and_written(model: str, tmp_path: Path) -> None:
    table, profile = tmp_path / "operators.csv", tmp_path / "profile.json"
    typed = (DIGITS.with_name(model), "--accelerators", f"local_cpu{CORE}", "--seconds", "1")
    succeed("profile", *typed, "--no-refine", "-o", profile, "--operators", table)
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert {("local", f"local_cpu{CORE}")} == {(row["board"], row["accelerator"]) for row in rows}
    assert {"CONV_2D", "Conv"} & {row["operator"].split()[0] for row in rows}
    assert all(row["shapes"] and row["kernel"] for row in rows)
    # Each operator runs once in a frame; those without a name of their own are one row.
    assert 20 <= min(int(row["count"]) for row in rows)


@pytest.mark.ci
def test_an_engine_that_does_not_report_operators_is_named(tmp_path: Path) -> None:
    boards = platform(tmp_path, cpu={"engine": "null"})
    refusal = pytest.raises(RankSliceError, match="the engine null does not report operators")
    with Profiler(DIGITS, boards, None, ProfileOptions(alone=True)) as profiler, refusal:
        profiler.operators()


def platform(folder: Path, **accelerators: Any) -> Path:
    """Return the file of a platform: this machine with accelerators in software."""
    board = {"host": "localhost", "cores": [CORE], **accelerators}
    (folder / "platform.yaml").write_text(json.dumps({"boards": {"virtual": board}}))
    return folder / "platform.yaml"


def measured_on(key: str, platform: Path) -> ProfiledKind:
    """Return an accelerator's profile of the whole model, and of its two halves."""
    with Profiler(
        DIGITS, platform, None, ProfileOptions(accelerators=(key,), alone=True)
    ) as profiler:
        last, half = profiler.layers - 1, profiler.layers // 2
        profiler.measure_slices([Slice(0, 0, last), Slice(0, 0, half - 1), Slice(0, half, last)])
    (kind,) = profiler.profile.kinds
    return kind


@pytest.mark.ci
@needs_swiftshader
def test_slices_are_measured_on_a_gpu(tmp_path: Path) -> None:
    gpu = {"engine": "litert", "environment": gpu_environment()}
    kind = measured_on("virtual_gpu", platform(tmp_path, gpu=gpu))
    assert ("gpu", [None] * 3) == (kind.accelerator, [span.problem for span in kind.spans])
    assert all(len(span.samples_ns) >= 5 for span in kind.spans)


@pytest.mark.ci
@needs_openvino
def test_slices_are_measured_on_an_npu(tmp_path: Path) -> None:
    npu = {"engine": "litert", "options": NPU_OPTIONS, "environment": NPU_ENVIRONMENT}
    kind = measured_on("virtual_npu", platform(tmp_path, npu=npu))
    assert ("npu", [None] * 3) == (kind.accelerator, [span.problem for span in kind.spans])
    assert all(len(span.samples_ns) >= 5 for span in kind.spans)
