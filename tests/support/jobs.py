"""Build folders for tests, and the unsliced model to compare with."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

from rankslice.backend.codegen import render_driver
from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sizes import make_slot, values_in
from rankslice.backend.runtime.sources import open_source
from rankslice.framework.plan import Plan
from rankslice.framework.reading.read_driver import read_driver
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.session.build_folder import read_plan
from rankslice.session.building.build import BuildOptions, build

onnxruntime = load_onnxruntime()

FIRST_CORE = min(os.sched_getaffinity(0))

FIGURE_2 = """
<ir_version: 8, opset_import: ["" : 17]>
figure2 (float[1,4,8,8] x) => (float[1,4,4,4] y) {
  pooled = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
  convolved = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (pooled, k)
  fc = Mul (pooled, w)
  added = Add (convolved, fc)
  y = Relu (added)
}
"""
"""AutoDiCE's example: rank 0 has the first layer and one in the middle."""


def figure_2() -> onnx.ModelProto:
    model = onnx.parser.parse_model(FIGURE_2)
    random = np.random.default_rng(0)
    for name, shape in {"k": (4, 4, 3, 3), "w": (1, 4, 1, 1)}.items():
        values = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    for node, name in zip(
        model.graph.node, ["MaxPool1", "Conv1", "FC1", "Add1", "Relu1"], strict=True
    ):
        node.name = name
    return model


FIGURE_2_RANKS = {"MaxPool1": 0, "Add1": 0, "FC1": 1, "Conv1": 2, "Relu1": 2}


def shared_core_key(rank: int) -> str:
    return f"local_cpu{FIRST_CORE}" + (f".{rank + 1}" if rank else "")


Weights: TypeAlias = Mapping[int, Sequence[int]]
"""By entry of a mapping, the weights of the ranks that take turns; each other entry is one rank."""

NO_TURNS: Weights = MappingProxyType({})


def write_mapping(path: Path, entries: Mapping[str, int], weights: Weights = NO_TURNS) -> Path:
    """Write a mapping file in which all ranks share one core of this machine.

    Args:
        path: where.
        entries: of the layers.
        weights: of the ranks that take turns.
    """
    keys = turn_keys(max(entries.values()) + 1, weights, shared_core_key)
    mapping: dict[str, list[str]] = {key: [] for key in keys}
    for layer, entry in entries.items():
        mapping[keys[entry]].append(layer)
    path.write_text(json.dumps(mapping))
    return path


def turn_keys(entries: int, weights: Weights, key: Callable[[int], str]) -> list[str]:
    """Return the keys of entries; ``key`` gives that of a rank, by its number."""
    numbers = itertools.count()
    return [
        "|".join(f"{key(next(numbers))}*{weight}" for weight in weights[entry])
        if entry in weights
        else key(next(numbers))
        for entry in range(entries)
    ]


def routed_figure(folder: Path) -> Path:
    """Build AutoDiCE's example with the whole model on rank 0, and its three ranks in a surge."""
    onnx.save(figure_2(), folder / "model.onnx")
    usual = write_mapping(folder / "normal.json", dict.fromkeys(FIGURE_2_RANKS, 0))
    options = BuildOptions(
        share_cores=True, surge=write_mapping(folder / "surge.json", FIGURE_2_RANKS)
    )
    return build(folder / "model.onnx", usual, "local", folder / "out", options).folder


def build_folder(
    folder: Path,
    model: onnx.ModelProto | Path,
    entries: Mapping[str, int],
    at_most: Mapping[str, tuple[int, ...]] | None = None,
    weights: Weights = NO_TURNS,
) -> Path:
    """Slice a model for this machine, as :func:`write_mapping` says; return the build folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = model if isinstance(model, Path) else folder / "model.onnx"
    if not isinstance(model, Path):
        onnx.save(model, path)
    mapping = write_mapping(folder / "mapping.json", entries, weights)
    options = BuildOptions(share_cores=True, sizes=GivenSizes(at_most=at_most or {}))
    return build(path, mapping, "local", folder / "out", options).folder


def use_null_engine(folder: Path, sleep_ms: float = 0.0) -> None:
    """Change a build folder's driver so that its ranks sleep instead of computing."""
    plan = read_plan(folder)
    options = (("sleep_ms", str(sleep_ms)),)
    ranks = [replace(rank, engine="null", options=options) for rank in plan.ranks]
    write_job(folder, plan.with_ranks(ranks))


def write_job(folder: Path, plan: Plan) -> None:
    """Write the driver of a build folder anew, for its package has the same file."""
    (folder / "driver.py").unlink()
    (folder / "driver.py").write_text(render_driver(plan))


def unsliced_outputs(folder: Path, inputs: Sequence[str], frames: int) -> list[NDArray[Any]]:
    """Run the unsliced, unoptimised model; return one array [frames, *shape] per output."""
    found = unsliced_frames(folder, inputs, frames)
    return [
        np.array([outputs[number] for outputs in found], spec.dtype).reshape(frames, *spec.shape)
        for number, spec in enumerate(read_driver(folder / "driver.py").outputs)
    ]


def unsliced_frames(folder: Path, inputs: Sequence[str], frames: int) -> list[list[NDArray[Any]]]:
    """Run the unsliced, unoptimised model; return the outputs of each frame, in their shapes."""
    job = read_driver(folder / "driver.py")
    source = open_source(RunOptions(tuple(inputs), frames=frames), job.inputs)
    found = []
    with closing(open_engine("onnxruntime", EngineSettings(exact=True))) as engine:
        engine.load(folder / "model", job.inputs, job.outputs)
        slots = [make_slot(spec) for spec in job.inputs]
        for frame in range(frames):
            outputs = [make_slot(spec) for spec in job.outputs]
            source.read(frame, slots)
            engine.run([*map(values_in, slots)], outputs)
            found.append([*map(values_in, outputs)])
    return found


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
