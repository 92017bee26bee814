"""When a GPU ran operators, on its own clock, as onnxruntime's profile has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from litert_engines import gpu_environment
from plugin_providers import WEBGPU, needs_webgpu

from rankslice.backend.runtime.figures.operator_profile import OperatorSpans
from rankslice.backend.runtime.job.strict import as_record
from rankslice.measurement.trace.traced_operators import place_operators

FRAMES = 50
DIGITS = Path(__file__).parents[4] / "models" / "digits.onnx"

PROGRAM = f"""
import json, sys, time
from dataclasses import asdict
from pathlib import Path
import numpy as np
from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.job import Tensor

image = Tensor("image", "float32", (1, 1, 8, 8))
scores = Tensor("probabilities", "float32", (1, 10))
engine = open_engine(
    "onnxruntime", EngineSettings(1, options={{"provider": "WebGPU"}}, profile=sys.argv[2])
)
engine.load(Path(sys.argv[1]), [image], [scores])
slots = np.ones(image.shape, np.float32), np.empty(scores.shape, np.float32)
steps = []
for frame in range({FRAMES} + 1):
    begin = time.monotonic_ns()
    engine.run(slots[:1], slots[1:])
    steps.append((begin, time.monotonic_ns()))
    time.sleep(0.002 * (frame % 3))
print(json.dumps([steps, asdict(engine.operators())]))
engine.close()
"""
"""The first run compiles the shaders."""


@pytest.mark.ci
@needs_webgpu
def test_what_a_gpu_did_lies_where_it_was_waited_for(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        **gpu_environment(),
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1",
        "PYTHONPATH": str(WEBGPU),
    }
    command = [sys.executable, "-c", PROGRAM, str(DIGITS), str(tmp_path / "profile")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    steps, record = json.loads(ended.stdout.splitlines()[-1])
    segment = as_record(OperatorSpans, record)
    begins, ends = np.array(steps[1:], np.int64).T
    queued, ran = place_operators(segment, begins, ends)
    assert ("", "WebGpu") == (queued.by, ran.by)
    assert "WebGpu" == segment.queued_by
    names = {step.name for step in ran.steps}
    assert {"Conv conv1_token_2", "Gemm dense", "Softmax softmax"} <= names
    assert {*range(FRAMES)} == {step.frame for step in ran.steps}
    took_ns = int((ends - begins).sum())
    assert 0.5 < sum(step.end_ns - step.begin_ns for step in ran.steps) / took_ns <= 1
    # What was queued for a frame first cannot have run before.
    error_ns = queued.error_ns + ran.error_ns
    for frame in range(FRAMES):
        first = min(step.begin_ns for step in queued.steps if step.frame == frame)
        assert min(step.begin_ns for step in ran.steps if step.frame == frame) > first - error_ns
    assert [] == [*tmp_path.iterdir()], "a profile was left"
