"""Whether sending and receiving overlap computing, and whether interleaved mappings pipeline.

The ranks use the null engine, which sleeps for a given time instead of computing. A pipeline
of two ranks could reach one frame in the longer of a stage's time and the time of a message,
measured as a raw mpi4py ping-pong in the same round. Without overlap a frame takes their sum.

AutoDiCE's Figure 2 gives the first layer and one in the middle to one rank. Each rank has the
same work, so the pipeline could reach one frame in that time; one frame after the other takes
the time of the longest path.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from channel_time import raw_time_s
from null_jobs import null_folder
from timing import console, machine, print_table, ratios, spread, start_round

from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.transport.mpi import MpiTransport
from rankslice.commands.run.run import prepare, run

CHAIN = """
<ir_version: 8, opset_import: ["" : 17]>
two_layers (float[1,1] x) => (float[1,1] y) <int64[2] shape = {{1, {width}}}> {{
  middle = Expand (x, shape)
  y = ReduceMax <axes = [1], keepdims = 1> (middle)
}}
"""
FIGURE_2 = """
<ir_version: 8, opset_import: ["" : 17]>
figure2 (float[1,1024] input) => (float[1,1024] output) {
  Buff1 = Relu (input)
  Buff3 = Relu (Buff1)
  Buff2 = Relu (Buff1)
  Buff4 = Add (Buff2, Buff3)
  output = Relu (Buff4)
}
"""
FIGURE_2_LAYERS = ("MaxPool1", "Conv1", "FC1", "Add1", "Relu1")
FIGURE_2_RANKS = {"MaxPool1": 0, "Add1": 0, "FC1": 1, "Conv1": 2, "Relu1": 2}
FIGURE_2_SLEEPS_MS = (10.0, 20.0, 10.0)
"""Of each segment: ranks 0 and 2 have two of them."""
SLOWEST_RANK_MS = 20.0
LONGEST_PATH_MS = 50.0
"""MaxPool1, FC1, Add1, Relu1."""


@dataclass(frozen=True, slots=True)
class Case:
    """A chain of two ranks."""

    network: str
    """``shared memory`` or ``tcp``."""
    megabytes: float
    sleep_ms: float


CASES = (
    Case("shared memory", 2.4, 20),
    Case("tcp", 2.4, 20),
    Case("shared memory", 8, 5),
    Case("tcp", 8, 5),
)


@contextmanager
def over(network: str) -> Iterator[None]:
    """Let the jobs that start inside use a network."""
    if network == "tcp":
        os.environ["OMPI_MCA_btl"] = "tcp,self"  # noqa: SIM112
    try:
        yield
    finally:
        os.environ.pop("OMPI_MCA_btl", None)


def message_ms(size: int) -> float:
    """Return the time of a message of ``size`` bytes between two fresh processes."""
    command = [str(find_mpirun().path), "-n", "2", "--map-by", "slot:oversubscribe"]
    command += ["--bind-to", "none"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += [sys.executable, __file__, "--message", str(size)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(json.loads(answer))


def be_a_rank(size: int) -> None:
    """Be one of the two processes of the ping-pong; rank 0 prints the milliseconds."""
    transport = MpiTransport()
    cores = sorted(os.sched_getaffinity(os.getppid()))
    os.sched_setaffinity(0, {cores[transport.rank % len(cores)]})
    times = raw_time_s(transport, size, 50)
    transport.exchange(b"")
    if transport.rank == 0:
        print(json.dumps(1e3 * statistics.median(times)))
    transport.close()


def frame_ms(folder: Path, frames: int) -> float:
    """Run a job; return the time per frame."""
    return 1e3 / run(prepare(folder, RunOptions(frames=frames))).summary.throughput_fps


def measure_chain(place: Path, case: Case, frames: int) -> Callable[[], tuple[float, float]]:
    """Build a chain; return what measures (time per frame, time of a message) in ms."""
    width = int(case.megabytes * 1e6 / 4)
    place.mkdir()
    layers = ("first", "second")
    sleeps_ms = (case.sleep_ms, case.sleep_ms)
    folder = null_folder(
        place, CHAIN.format(width=width), layers, {"first": 0, "second": 1}, sleeps_ms
    )

    def measure() -> tuple[float, float]:
        with over(case.network):
            return frame_ms(folder, frames), message_ms(4 * width)

    return measure


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--frames", type=int, default=200, help="per run")
    add("--rounds", type=int, default=5, help="rounds of measurements")
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    add("--message", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.message:
        be_a_rank(given.message)
        return
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as temporary:
        place = Path(temporary)
        chains = {
            case: measure_chain(place / str(number), case, given.frames)
            for number, case in enumerate(CASES)
        }
        (place / "figure2").mkdir()
        figure_2 = null_folder(
            place / "figure2", FIGURE_2, FIGURE_2_LAYERS, FIGURE_2_RANKS, FIGURE_2_SLEEPS_MS
        )
        found: dict[Case, list[tuple[float, float]]] = {case: [] for case in CASES}
        frames_ms = []
        for number in range(given.rounds):
            start_round(number + 1, given.rounds, given.patience)
            frames_ms.append(frame_ms(figure_2, given.frames))
            for case, measure in chains.items():
                found[case].append(measure())
    rows = []
    for case, pairs in found.items():
        took = [pair[0] for pair in pairs]
        ideal = [max(case.sleep_ms, pair[1]) for pair in pairs]
        total = [case.sleep_ms + pair[1] for pair in pairs]
        rows.append(
            (
                f"{case.network}, {case.megabytes:g} MB, {case.sleep_ms:g} ms",
                spread(took).text(2),
                spread(pair[1] for pair in pairs).text(2),
                ratios(ideal, took).text(3),
                ratios(total, took).text(3),
            )
        )
    columns = ("two ranks", "ms per frame", "ms per message", "longer / frame", "sum / frame")
    print_table("Overlap: 1 in the last but one column is the best possible", columns, rows)
    slowest = [SLOWEST_RANK_MS] * given.rounds
    longest = [LONGEST_PATH_MS] * given.rounds
    columns = ("three ranks", "ms per frame", "slowest rank / frame", "longest path / frame")
    row = ("Figure 2", spread(frames_ms).text(2))
    row += (ratios(slowest, frames_ms).text(3), ratios(longest, frames_ms).text(3))
    print_table("Interleaved mapping", columns, [row])


if __name__ == "__main__":
    main()
