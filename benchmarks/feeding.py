"""What it costs that a program feeds a job: ``rankslice.open`` against ``rankslice run``.

The rate of ``pipeline.map`` and of a run, in turn, for a network; and what a frame takes on top of
a run, by its size, in jobs whose ranks compute nothing.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from null_jobs import null_folder
from numpy.typing import NDArray
from pipeline_efficiency import model_of, shipped_mapping
from timing import console, in_turns, machine, print_table, ratios, spread

import rankslice
from rankslice.backend.runtime.options import RunOptions
from rankslice.session.building.build import build
from rankslice.session.run import prepare, run

SIZES = (4_000, 600_000, 2_000_000)
"""Of a frame, in bytes."""

_COPY = """
<ir_version: 8, opset_import: ["" : 17]>
copy (float[1,{width}] x) => (float[1,1] y) {{
  a = Relu (x)
  y = ReduceMax <keepdims = 1> (a)
}}
"""


def null_job(place: Path, size: int) -> Path:
    """Build two ranks that compute nothing; return the folder."""
    place.mkdir()
    return null_folder(place, _COPY.format(width=size // 4), "ab", {"a": 0, "b": 1}, (0.0, 0.0))


def stored(folder: Path, count: int = 8) -> tuple[Path, NDArray[np.float32]]:
    """Return a file of random frames for a job of one input, and the frames."""
    with rankslice.open(folder) as pipeline:
        (spec,) = pipeline.inputs
    frames = np.random.default_rng(0).standard_normal((count, *spec.shape)).astype(np.float32)
    path = folder.parent / "frames.npy"
    np.save(path, frames)
    return path, frames


def run_fps(folder: Path, path: Path, frames: int) -> float:
    """Return the rate of a run on stored frames."""
    options = RunOptions(inputs=(str(path),), frames=frames)
    return run(prepare(folder, options)).summary.throughput_fps or 0.0


def fed_fps(folder: Path, arrays: NDArray[np.float32], frames: int) -> float:
    """Return the rate at which a program gets results, without the first and last of them."""
    with rankslice.open(folder) as pipeline:
        skipped = pipeline.limit
        results = pipeline.map(endless(arrays, frames + 2 * skipped))
        for _ in range(skipped):
            next(results)
        begin = time.perf_counter()
        for _ in range(frames):
            next(results)
        passed_s = time.perf_counter() - begin
        for _ in results:
            pass
    return frames / passed_s


def endless(arrays: NDArray[np.float32], count: int) -> Iterator[NDArray[np.float32]]:
    """Yield so many frames."""
    return itertools.islice(itertools.cycle(arrays), count)


def compare(folder: Path, frames: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the rates of a run and of a program, in turn."""
    path, arrays = stored(folder)
    ways = {
        "run": partial(run_fps, folder, path, frames),
        "fed": partial(fed_fps, folder, arrays, frames),
    }
    results = in_turns(rounds, ways)
    return results["run"], results["fed"]


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="resnet50", help="of the zoo, with a shipped mapping")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as name:
        place = Path(name)
        mapping = shipped_mapping(args.network)
        network = build(model_of(args.network), mapping, "local", place / "network" / "out").folder
        ran, fed = compare(network, 100, args.rounds)
        console.print(
            f"{args.network}: run {spread(ran).text(1)}, fed {spread(fed).text(1)} frames/s"
        )
        console.print(f"fed / run: {ratios(fed, ran).text(3)}")
        rows = []
        for size in SIZES:
            ran, fed = compare(null_job(place / f"{size}", size), 1000, args.rounds)
            run_us, fed_us = ([1e6 / rate for rate in rates] for rates in (ran, fed))
            on_top = spread(b - a for a, b in zip(run_us, fed_us, strict=True))
            rows.append(
                [f"{size:,}", spread(run_us).text(0), spread(fed_us).text(0), on_top.text(0)]
            )
        columns = ("bytes of a frame", "run, us a frame", "fed, us a frame", "on top, us")
        print_table("ranks that compute nothing", columns, rows)


if __name__ == "__main__":
    main()
