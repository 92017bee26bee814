"""What the runtime itself costs: two ranks that compute nothing, and tensors of 4 kB.

The ranks use the null engine, which sleeps for a given time instead of computing. Frames are read
from a file: to make random ones would take a third of the time. The rate is compared with the one
that the sleeping allows. The other table is about a rank that has nothing to do: frames come every
two seconds, which the ranks know after eight.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from null_jobs import null_folder
from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.backend.runtime.options import RunOptions
from rankslice.session.run import prepare, run

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
two_layers (float[1,1024] x) => (float[1,1024] y) {
  middle = Relu (x)
  y = Relu (middle)
}
"""
IDLE_FPS = 0.5
FRAME = "frame.npz"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of two ranks."""

    fps: float
    cpu_ms: tuple[float, ...]
    """Processor time per frame, by rank."""
    cpu_share: tuple[float, ...]
    """Processor time over wall time, by rank."""


def sleeping_ranks(place: Path, sleep_ms: float) -> Path:
    """Return a build folder of two ranks that sleep for ``sleep_ms`` in each frame."""
    np.savez(place / FRAME, x=np.ones((1, 1024), np.float32))
    layers = {"first": 0, "second": 1}
    return null_folder(place, MODEL, tuple(layers), layers, (sleep_ms,) * 2)


def run_pipeline(folder: Path, frames: int, fps: float | None = None) -> Measured:
    """Run the folder's job once."""
    inputs = (str(folder.parent / FRAME),)
    prepared = prepare(folder, RunOptions(inputs=inputs, frames=frames, fps=fps))
    summary = run(prepared).summary
    assert prepared.options.report is not None
    records = json.loads(prepared.options.report.read_text())["ranks"]
    return Measured(
        summary.throughput_fps,
        tuple(rank.cpu_ms for rank in summary.ranks),
        tuple(record["cpu_ms"] * frames / 1e3 / record["wall_s"] for record in records),
    )


def _cpu_texts(runs: Sequence[Measured]) -> list[str]:
    ranks = range(len(runs[0].cpu_ms))
    return [spread(1e3 * run.cpu_ms[rank] for run in runs).text(0) for rank in ranks]


def report_rates(place: Path, sleeps_ms: Sequence[float], frames: int, rounds: int) -> None:
    """Measure and print rate and processor time for each time of sleep."""
    jobs = {}
    for sleep in sleeps_ms:
        count = frames if not sleep else max(50, min(frames, int(3e3 / sleep)))
        jobs[sleep] = partial(run_pipeline, sleeping_ranks(place, sleep), count)
    rows = []
    for sleep, runs in in_turns(rounds, jobs).items():
        fps = [run.fps for run in runs]
        share = ratios(fps, [1e3 / sleep] * rounds).text(3) if sleep else ""
        name = f"stages sleep {sleep:g} ms" if sleep else "stages do nothing"
        rows.append((name, spread(fps).text(0), share, *_cpu_texts(runs)))
    columns = ("", "frames/s", "ratio to 1/sleep", "CPU us/frame, rank 0", "rank 1")
    print_table("Two ranks, null engine, 4 kB", columns, rows)


def report_idle(folder: Path, seconds: float, rounds: int) -> None:
    """Measure and print the processor time of ranks that wait for frames."""
    frames = max(2, round(seconds * IDLE_FPS))
    runs = [run_pipeline(folder, frames, IDLE_FPS) for _ in range(rounds)]
    rows = [
        (str(rank), f"{spread(100 * run.cpu_share[rank] for run in runs).text(2)} %")
        for rank in range(2)
    ]
    print_table(f"Idle: {IDLE_FPS} frames/s for {seconds:g} s", ("rank", "of a core"), rows)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--frames", type=int, default=4000, help="per run, at most 3 s of sleep each")
    add("--rounds", type=int, default=5, help="rounds of measurements")
    add("--sleep", type=float, nargs="+", default=[0, 1, 5, 20], metavar="MS", help="of a stage")
    add("--idle", type=float, default=40, help="seconds with a frame every two")
    args = parser.parse_args()
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        place = Path(folder)
        report_rates(place, args.sleep, args.frames, args.rounds)
        report_idle(sleeping_ranks(place, 0.001), args.idle, max(1, args.rounds // 2))


if __name__ == "__main__":
    main()
