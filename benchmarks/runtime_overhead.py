"""What the runtime itself costs: two ranks that compute nothing, and tensors of 4 kB.

The ranks use the null engine, which sleeps for a given time instead of computing. Frames are read
from a file: to make random ones would take a third of the time. The rate is compared with the one
that the sleeping allows, and at no sleep with a bare loop of blocking mpi4py calls that moves the
same bytes. One table has the rate of one rank and of two with a window of 1. The last one is about
a rank that has nothing to do: frames come every two seconds, which the ranks know after eight.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from null_jobs import null_folder
from timing import console, machine, print_table, ratios, spread, start_round

from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.run.run import prepare, run

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


def sleeping_ranks(place: Path, sleep_ms: float, ranks: int = 2) -> Path:
    """Return a build folder of one or two ranks that sleep for ``sleep_ms`` in each frame."""
    np.savez(place / FRAME, x=np.ones((1, 1024), np.float32))
    layers = {"first": 0, "second": ranks - 1}
    return null_folder(place, MODEL, tuple(layers), layers, (sleep_ms,) * ranks)


def run_pipeline(
    folder: Path, frames: int, fps: float | None = None, window: int | None = None
) -> Measured:
    """Run the folder's job once."""
    inputs = (str(folder.parent / FRAME),)
    prepared = prepare(folder, RunOptions(inputs=inputs, frames=frames, fps=fps, window=window))
    summary = run(prepared).summary
    assert prepared.options.report is not None
    records = json.loads(prepared.options.report.read_text())["ranks"]
    return Measured(
        summary.throughput_fps,
        tuple(rank.cpu_ms for rank in summary.ranks),
        tuple(record["cpu_ms"] * frames / 1e3 / record["wall_s"] for record in records),
    )


def run_bare(frames: int, window: int) -> Measured:
    """Move the same bytes with blocking calls, which never sleep."""
    command = [str(find_mpirun().path), "-n", "2", "--map-by", "slot:oversubscribe"]
    command += ["--bind-to", "none"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += [sys.executable, __file__, "--bare", str(frames), str(window)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Measured(**{name: _as_tuple(value) for name, value in json.loads(answer).items()})


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def bare_rank(frames: int, window: int) -> None:
    """Be one of the two ranks of the bare loop; rank 0 prints what both measured."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    cores = sorted(os.sched_getaffinity(os.getppid()))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    tensor, credit = np.ones(1024, np.float32), np.zeros(1, np.uint64)
    comm.Barrier()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for frame in range(frames):
        if rank == 0:
            if frame >= window:
                comm.Recv(credit, 1)
            comm.Send(tensor, 1)
        else:
            comm.Recv(tensor, 0)
            comm.Send(credit, 0)
    if rank == 0:
        for _ in range(window):
            comm.Recv(credit, 1)
    passed, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    everybody = comm.gather((1e3 * cpu / frames, cpu / passed))
    if everybody is not None:
        cpu_ms, cpu_share = zip(*everybody, strict=True)
        print(json.dumps({"fps": frames / passed, "cpu_ms": cpu_ms, "cpu_share": cpu_share}))


def _cpu_texts(found: Sequence[Measured]) -> list[str]:
    ranks = range(len(found[0].cpu_ms))
    return [spread(1e3 * each.cpu_ms[rank] for each in found).text(0) for rank in ranks]


def report_rates(
    place: Path, sleeps_ms: Sequence[float], frames: int, rounds: int, patience_s: float
) -> None:
    """Measure and print rate and processor time for each time of sleep."""
    folders = {sleep: sleeping_ranks(place, sleep) for sleep in sleeps_ms}
    window = prepare(folders[sleeps_ms[0]], RunOptions(frames=1)).plan.window
    found: dict[float, list[Measured]] = {sleep: [] for sleep in sleeps_ms}
    bare = []
    for number in range(rounds):
        start_round(number + 1, rounds, patience_s)
        bare.append(run_bare(10 * frames, window))
        for sleep, folder in folders.items():
            count = frames if not sleep else max(50, min(frames, int(3e3 / sleep)))
            found[sleep].append(run_pipeline(folder, count))
    bare_fps = [each.fps for each in bare]
    rows = [("bare mpi4py loop", spread(bare_fps).text(0), "", *_cpu_texts(bare))]
    for sleep, runs in found.items():
        fps = [each.fps for each in runs]
        ideal = [1e3 / sleep] * rounds if sleep else bare_fps
        name = f"stages sleep {sleep:g} ms" if sleep else "stages do nothing"
        rows.append((name, spread(fps).text(0), ratios(fps, ideal).text(3), *_cpu_texts(runs)))
    columns = ("", "frames/s", "ratio to bare, 1/sleep", "CPU us/frame, rank 0", "rank 1")
    print_table(f"Two ranks, null engine, 4 kB, window {window}", columns, rows)


def report_window_of_one(place: Path, frames: int, rounds: int, patience_s: float) -> None:
    """Measure and print the rate of ranks that do nothing, with one frame inside at a time."""
    own = place / "window-of-one"
    own.mkdir()
    folders = {ranks: sleeping_ranks(own, 0, ranks) for ranks in (1, 2)}
    found: dict[int, list[tuple[Measured, Measured]]] = {1: [], 2: []}
    for number in range(rounds):
        start_round(number + 1, rounds, patience_s)
        for ranks, folder in folders.items():
            alone = run_pipeline(folder, frames, window=1)
            found[ranks].append((alone, run_pipeline(folder, frames)))
    rows = []
    for ranks, pairs in found.items():
        alone_fps, full_fps = ([pair[side].fps for pair in pairs] for side in (0, 1))
        rows.append((str(ranks), spread(alone_fps).text(0), ratios(alone_fps, full_fps).text(3)))
    columns = ("ranks", "frames/s", "ratio to the plan's window")
    print_table("A window of 1, null engine, 4 kB", columns, rows)


def report_idle(folder: Path, seconds: float, rounds: int) -> None:
    """Measure and print the processor time of ranks that wait for frames."""
    frames = max(2, round(seconds * IDLE_FPS))
    found = [run_pipeline(folder, frames, IDLE_FPS) for _ in range(rounds)]
    rows = [
        (str(rank), f"{spread(100 * each.cpu_share[rank] for each in found).text(2)} %")
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
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    add("--bare", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        bare_rank(*given.bare)
        return
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        place = Path(folder)
        report_rates(place, given.sleep, given.frames, given.rounds, given.patience)
        report_window_of_one(place, given.frames, given.rounds, given.patience)
        report_idle(sleeping_ranks(place, 0.001), given.idle, max(1, given.rounds // 2))


if __name__ == "__main__":
    main()
