"""What it costs that ranks note each event: ResNet-50 and MobileNetV2.

The time of one event, measured alone, times the events of a frame over all ranks of a job of two,
is given as a share of the frame's latency. Beside it stand blocks of frames with and without
events, in turn within one process that has the whole network: the ratio of each block to the one
beside it, with the interval of the median.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from pipeline_efficiency import even_mapping, store_frames
from published_networks import mobilenet_v2
from timing import console, machine, print_table, ratios

from rankslice.backend.runtime.figures.events import COMPUTE, open_ring
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.rank import run_rank
from rankslice.framework.reading.read_driver import read_driver
from rankslice.measurement.trace.trace_events import events_needed
from rankslice.networks.zoo import zoo_model
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.run import prepare, run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from twin import ThreadLinks

SETTLES = 5
"""Frames that are left out."""
BLOCK_FRAMES = 10
EVENTS = 100_000
"""Noted to measure one."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Times of a frame, block by block."""

    on: tuple[float, ...]
    """With events."""
    off: tuple[float, ...]
    """Without, each beside the one with them."""

    @property
    def text(self) -> str:
        """The ratio."""
        return ratios(self.on, self.off).text(4)


@dataclass(frozen=True, slots=True)
class Traced:
    """What events cost a network."""

    network: str
    event_ns: float
    events: float
    """Of a frame, over all ranks."""
    latency_ms: float
    """Median."""
    passed: Blocks
    """By the clock."""
    processor: Blocks
    """Processor time of the process."""

    @property
    def share(self) -> float:
        """What the events of a frame take of its latency."""
        return 1e-6 * self.event_ns * self.events / self.latency_ms


def time_of_event_ns(place: Path) -> float:
    """Return the time of noting an event in a file, in nanoseconds: the least of some turns."""
    ring = open_ring(place, 0)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for frame in range(EVENTS):
            ring.add(COMPUTE, begin, begin, frame, 0, thread=0, route=0)
        with_loop = time.perf_counter() - begin
        begin = time.perf_counter()
        for _frame in range(EVENTS):
            pass
        times.append(with_loop - (time.perf_counter() - begin))
    return 1e9 * min(times) / EVENTS


def events_and_latency(model: Path, place: Path, frames: int) -> tuple[float, float]:
    """Return the events of a frame over two ranks that exchange messages, and its latency in ms."""
    mapping = even_mapping(model, 2)
    built = build(model, mapping, "local", place / "two", BuildOptions(share_cores=True))
    inputs = (str(store_frames(built.plan, place / "two.npz")),)
    kept = events_needed(built.plan, frames)
    options = RunOptions(
        inputs=inputs,
        frames=frames,
        window=1,
        direct=False,
        events=Path("events"),
        events_kept=kept,
    )
    trace = run(prepare(built.folder, options)).trace
    assert trace is not None
    events = sum(len(rank.events) for rank in trace.ranks)
    return events / frames, 1e3 * float(np.median(trace.latencies_s))


def run_blocks(model: Path, place: Path, pairs: int) -> tuple[Blocks, Blocks]:
    """Run the network in this process; return what frames take by the clock, and of processors."""
    mapping = even_mapping(model, 1)
    built = build(model, mapping, "local", place / "one", BuildOptions(share_cores=True))
    inputs = (str(store_frames(built.plan, place / "one.npz")),)
    frames = SETTLES + 2 * pairs * BLOCK_FRAMES + 1
    options = RunOptions(inputs=inputs, frames=frames, window=1, results=Path(os.devnull))
    ring = open_ring(place, 0)
    usual = ring.add
    begins: list[tuple[float, float]] = []

    def nothing(*event: Any, **rest: Any) -> None:
        pass

    def begin_step(step: str) -> None:
        if not step.startswith("segment"):  # of the source or the sink
            return
        block, first = divmod(len(begins) - SETTLES, BLOCK_FRAMES)
        if not first:
            # On, off; off, on: so that what drifts counts on both sides.
            is_on = block % 4 in (0, 3)
            ring.add = usual if is_on else nothing  # type: ignore[method-assign]
        begins.append((time.perf_counter(), time.process_time()))

    job = read_driver(built.folder / "driver.py")
    alone = ThreadLinks(1).transport(0)
    run_rank(job, built.folder, options, alone, on_step=begin_step, events=ring)
    taken = np.diff(np.array(begins), axis=0)[SETTLES:][: 2 * pairs * BLOCK_FRAMES]
    passed, processor = (_paired(taken[:, column]) for column in (0, 1))
    return passed, processor


def _paired(taken_s: NDArray[np.float64]) -> Blocks:
    """Return the medians of blocks whose frames took so long."""
    times = np.median(taken_s.reshape(-1, BLOCK_FRAMES), axis=1).reshape(-1, 2)
    times[1::2] = times[1::2, ::-1]
    return Blocks(tuple(times[:, 0].tolist()), tuple(times[:, 1].tolist()))


def measure(name: str, model: Path, place: Path, frames: int, pairs: int) -> Traced:
    """Measure what events cost a network."""
    place.mkdir()
    console.print(name, style="dim")
    events, latency_ms = events_and_latency(model, place, frames)
    passed, processor = run_blocks(model, place, pairs)
    return Traced(name, time_of_event_ns(place), events, latency_ms, passed, processor)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=50, help="of the job of two ranks")
    parser.add_argument("--pairs", type=int, default=200, help="of blocks of ten frames")
    args = parser.parse_args()
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        place = Path(folder)
        onnx.save(mobilenet_v2(), place / "mobilenet_v2.onnx")
        models = {"ResNet-50": zoo_model("resnet50"), "MobileNetV2": place / "mobilenet_v2.onnx"}
        results = [
            measure(name, model, place / name, args.frames, args.pairs)
            for name, model in models.items()
        ]
    rows = [
        (
            result.network,
            f"{result.event_ns:.0f}",
            f"{result.events:.1f}",
            f"{result.latency_ms:.2f}",
            f"{100 * result.share:.4f} %",
            result.passed.text,
            result.processor.text,
        )
        for result in results
    ]
    columns = (
        "",
        "event, ns",
        "events/frame",
        "latency, ms",
        "share",
        "with / without",
        "processor",
    )
    print_table("Events of two ranks; blocks of one rank", columns, rows)


if __name__ == "__main__":
    main()
