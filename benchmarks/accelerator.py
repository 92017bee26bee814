"""How fast whole networks run on an NVIDIA GPU, from host memory to host memory.

One table has the engine alone, in the ways in which it can bring frames to onnxruntime's CUDA
provider and back, each in a process of its own; the other a job with the network on one rank, whose
frames are copied from a file by a thread on the same core. Where there is no such GPU, or no
onnxruntime for it, the answer is "no accelerator".
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from published_networks import mobilenet_v2
from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.engines.cuda_stream import CudaError, CudaStream
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.sources.random_source import RandomSource
from rankslice.framework.reading.read_driver import read_driver
from rankslice.networks.zoo import zoo_model
from rankslice.session.building.build import build
from rankslice.session.run import prepare, run

TARGETS_FPS = {"resnet50": 1000, "mobilenet_v2": 1800}
"""On an H100."""

BOUND = "slots, bound anew"
WAYS: dict[str, dict[str, str]] = {
    BOUND: {"device_buffers": "0", "blocking_sync": "0"},
    "device buffers, blocking sync": {"enable_cuda_graph": "0", "pinned_slots": "0"},
    "all but CUDA graph": {"enable_cuda_graph": "0"},
    "all but pinned slots": {"pinned_slots": "0"},
    "all but blocking sync": {"blocking_sync": "0"},
    "all": {},
}
"""Options of the platform file."""
JOBS = (BOUND, "all but blocking sync", "all")
DEPTH = 3
FRAME = "frame.npz"


@dataclass(frozen=True, slots=True)
class Measured:
    """One way in one round."""

    ms: float
    """Per frame."""
    busy: float
    """Processor time over wall time."""
    difference: float | None = None
    """The largest from what the CPU gives, over the range of that; ``None``: not looked at."""
    without: Mapping[str, str] | None = None
    """What was not used, and why."""


def missing() -> str:
    """Say what is missing here; empty: nothing."""
    if "CUDAExecutionProvider" not in load_onnxruntime().get_available_providers():
        return "this onnxruntime has no CUDA provider"
    try:
        CudaStream(0, sleeps=False).close()
    except CudaError as error:
        return str(error)
    return ""


def model_of(network: str, place: Path) -> Path:
    """Return the file of a network."""
    if network == "resnet50":
        return zoo_model(network)
    path = place / f"{network}.onnx"
    onnx.save(mobilenet_v2(), path)
    return path


def build_job(model: Path, place: Path, options: Mapping[str, str]) -> Path:
    """Return a build folder with the whole model on a GPU rank; beside it is a frame."""
    nodes = onnx.load(model, load_external_data=False).graph.node
    gpu = {"engine": "onnxruntime", "provider": "CUDA", "options": dict(options)}
    board = {"host": "localhost", "cores": sorted(os.sched_getaffinity(0))[:1], "gpu": gpu}
    place.mkdir()
    (place / "platform.yaml").write_text(json.dumps({"boards": {"here": board}}))
    layers = [f"{nodes[0].name}..{nodes[-1].name}"]
    (place / "mapping.json").write_text(json.dumps({"here_gpu": layers}))
    folder = build(model, place / "mapping.json", place / "platform.yaml", place / "out").folder
    specs = read_driver(folder / "driver.py").inputs
    frame = [np.zeros(spec.shape, spec.dtype) for spec in specs]
    RandomSource(RunOptions(), specs).read(0, frame)
    values = {spec.name: array for spec, array in zip(specs, frame, strict=True)}
    np.savez(place / FRAME, **values)  # type: ignore[arg-type]
    return folder


def run_engine(
    folder: Path, settings: EngineSettings, frames: int
) -> tuple[float, float, NDArray[Any], Mapping[str, str]]:
    """Run the whole model without a job.

    Returns:
        Wall time and processor time of a frame in ms, the first output, and what was not used.
    """
    job = read_driver(folder / "driver.py")
    engine = open_engine("onnxruntime", settings)
    engine.load(folder / "model", job.inputs, job.outputs)
    inputs, outputs = (
        [Ring(spec, DEPTH, 1).slots for spec in side] for side in (job.inputs, job.outputs)
    )
    with np.load(folder.parent / FRAME) as values:
        for spec, slots in zip(job.inputs, inputs, strict=True):
            for slot in slots:
                slot[...] = values[spec.name]
    begin = begin_cpu = 0.0
    for frame in range(-max(3, frames // 10), frames):
        if frame == 0:
            begin, begin_cpu = time.perf_counter(), time.process_time()
        fed, made = ([slots[frame % DEPTH] for slots in side] for side in (inputs, outputs))
        engine.run(fed, made)
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - begin_cpu
    acceleration = engine.acceleration()
    result = outputs[0][0].copy()
    engine.close()
    without = acceleration.without if acceleration is not None else {}
    return 1e3 * wall_s / frames, 1e3 * cpu_s / frames, result, without


def measure_alone(folder: Path, way: str, frames: int) -> Measured:
    """Measure the engine in a process of its own, on one core as a rank."""
    command = [sys.executable, __file__, "--measure", str(folder), way, "--frames", str(frames)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def measure_here(folder: Path, way: str, frames: int) -> Measured:
    """Measure the engine in this process, and compare its result with the CPU's."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    options = {"provider": "CUDA", **WAYS[way]}
    settings = EngineSettings(options=options, accelerator="gpu")
    ms, cpu_ms, acceleration, without = run_engine(folder, settings, frames)
    _, _, expected, _ = run_engine(folder, EngineSettings(), 1)
    difference = float(np.abs(acceleration - expected).max() / np.ptp(expected))
    return Measured(ms, cpu_ms / ms, difference, without)


def measure_job(folder: Path, frames: int) -> Measured:
    """Run the job; its frames are copies of one in a file."""
    inputs = (str(folder.parent / FRAME),)
    summary = run(prepare(folder, RunOptions(inputs=inputs, frames=frames))).summary
    (rank,) = summary.ranks
    ms = 1e3 / summary.throughput_fps
    return Measured(ms, rank.cpu_ms / ms, without=(rank.accelerated or {})["without"])


def show(title: str, results: Mapping[str, list[Measured]]) -> None:
    """Print a table, with the ratios to the first row's, and what was not used."""
    first = [run.ms for run in next(iter(results.values()))]
    rows = [
        (
            way,
            spread(1e3 / run.ms for run in rounds).text(0),
            spread(run.ms for run in rounds).text(),
            ratios(first, [run.ms for run in rounds]).text(2),
            spread(run.busy for run in rounds).text(2),
            f"{rounds[-1].difference:.1e}" if rounds[-1].difference is not None else "-",
        )
        for way, rounds in results.items()
    ]
    columns = ("", "frames/s", "ms per frame", "times as fast", "host core", "from the CPU")
    print_table(title, columns, rows)
    for way, rounds in results.items():
        for name, why in (rounds[-1].without or {}).items():
            if not why.startswith("the platform file"):
                console.print(f"{way}: no {name}: {why}")


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--frames", type=int, default=2000, help="per measurement")
    add("--rounds", type=int, default=5, help="rounds of measurements")
    add("--measure", nargs=2, metavar=("FOLDER", "WAY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        folder, way = args.measure
        results = measure_here(Path(folder), way, args.frames)
        print(json.dumps({name: getattr(results, name) for name in Measured.__slots__}))
        return
    if reason := missing():
        console.print(f"no accelerator: {reason}")
        return
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as place:
        for network, target in TARGETS_FPS.items():
            model = model_of(network, Path(place))
            folders = {
                way: build_job(model, Path(place) / f"{network}-{number}", WAYS[way])
                for number, way in enumerate(JOBS)
            }
            alone = {way: partial(measure_alone, folders[BOUND], way, args.frames) for way in WAYS}
            jobs = {
                way: partial(measure_job, folder, args.frames) for way, folder in folders.items()
            }
            show(f"{network}, the engine alone", in_turns(args.rounds, alone))
            title = f"{network}, a job on one rank; wanted on an H100: {target} frames/s"
            show(title, in_turns(args.rounds, jobs))


if __name__ == "__main__":
    main()
