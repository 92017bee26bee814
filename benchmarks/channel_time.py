"""How long a channel between ranks of one board takes, from send to ready-to-run.

A job of two ranks on a core each: the first one's engine fills a tensor, stamps it and returns;
the second one's engine notes when it begins. Frames of 3 MB and more it also sums, and notes when
it has read all of their bytes. Frames leave at given gaps. Other ways to hand over a frame take
turns with the job (``channel_peers.py``): a bare FIFO that a process sleeps on, whatever lies
behind it; a ping-pong of blocking mpi4py calls, which has no gaps; with ``--peers`` zenoh and dora,
from an environment of their own, which is made first. Each round gives a median of each and
their ratio; medians of these and the range are told.

    python benchmarks/channel_time.py --rounds 5 --sizes 4k 3M --gaps 10 --peers
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psutil
from channel_peers import dora_dataflow
from gaps import TURN, read_log
from null_jobs import channel_folder
from timing import console, machine, print_table, ratios, spread, start_round

from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.backend.runtime.options import RunOptions
from rankslice.session.run import prepare

SIZES = {
    "4k": 4 << 10,
    "64k": 64 << 10,
    "256k": 256 << 10,
    "1M": 1 << 20,
    "3M": 3 << 20,
    "8M": 8 << 20,
}
GAPS_MS = (1.0, 10.0, 40.0)
JOB, LATENCY, OLD = "job", "job, --latency", "job, --no-direct"
FIFO, RAW = "FIFO", "raw MPI"
ZENOH, DORA = "zenoh", "dora"
PEERS = ("numpy", "eclipse-zenoh==1.10.*", "dora-rs==1.1.*", "dora-rs-cli==1.1.*")
FRAMES_A_TURN = 30
SHORTEST_TURN_S = 0.3
SETTLES = 5
"""Frames of a turn that are left out."""
START_TIMEOUT_S = 60.0
LONG_S = 3600.0

Command: TypeAlias = Sequence[str | Path]
_OPTIONS: dict[str, dict[str, Any]] = {JOB: {}, LATENCY: {"latency": True}, OLD: {"direct": False}}


@dataclass(frozen=True, slots=True)
class Turn:
    """What the frames of a turn took."""

    ready_us: Any
    """From send to ready-to-run, by frame, in microseconds."""
    summed_us: Any
    """The same until all bytes were summed."""
    cpu_share: float
    """Processor time of the receiver over wall time."""
    gap_ms: float
    """Median time between two frames."""

    @property
    def median_us(self) -> float:
        """From send to ready-to-run."""
        return float(np.median(self.ready_us))

    @property
    def summed_median_us(self) -> float:
        """The same until all bytes were summed."""
        return float(np.median(self.summed_us))


@dataclass
class Contestant:
    """A sender and a receiver that are running."""

    name: str
    place: Path
    started: list[subprocess.Popen[bytes]]
    _turns: int = field(init=False)

    @property
    def log(self) -> Path:
        """The receiver's records."""
        return self.place / "log"

    def __enter__(self) -> Contestant:
        """Wait for the first frame."""
        # Not for writing alone, which would wait for the sender to open it.
        self._turns = os.open(self.place / "turns", os.O_RDWR)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not len(read_log(self.log)):
            if time.monotonic() > deadline or any(
                process.poll() is not None for process in self.started
            ):
                self.__exit__()
                messages = (self.place / "messages").read_text(errors="replace")
                sys.exit(f"{self.name}: no frame has come: {messages[-1000:]}")
            # Again and again: the first frames may leave before the receiver is known.
            self._tell(0, 0.0, 0.0)
            time.sleep(0.2)
        time.sleep(0.2)
        return self

    def take_turn(self, number: int, gap_s: float, seconds: float) -> None:
        """Let it send frames for a while."""
        self._tell(number, gap_s, seconds)
        time.sleep(seconds + 0.05)

    def _tell(self, number: int, gap_s: float, seconds: float) -> None:
        until_ns = time.monotonic_ns() + int(1e9 * seconds)
        os.write(self._turns, TURN.pack(number, int(1e9 * gap_s), until_ns))

    def turn(self, number: int) -> Turn:
        """Return what a turn's frames took."""
        records = read_log(self.log)
        records = records[records["turn"] == number]
        if len(records) <= SETTLES + 1:
            sys.exit(f"{self.name}: {len(records)} frames in a turn; --frames lengthens turns")
        records = records[SETTLES:]
        used, passed = (int(records[name][-1] - records[name][0]) for name in ("cpu", "ready"))
        return Turn(
            (records["ready"] - records["sent"]) / 1e3,
            (records["done"] - records["sent"]) / 1e3,
            used / passed,
            float(np.median(np.diff(records["sent"]))) / 1e6,
        )

    def __exit__(self, *_: object) -> None:
        """End it."""
        os.close(self._turns)
        family = [psutil.Process(process.pid) for process in self.started if process.poll() is None]
        for process in [child for parent in family for child in parent.children(True)] + family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for process in self.started:
            process.wait()


def begin(name: str, size: int, place: Path, peers: Path | None) -> Contestant:
    """Start a contestant in an empty folder.

    Args:
        name: of the contestant.
        size: of frames, in bytes.
        place: the folder.
        peers: the environment with zenoh and dora.
    """
    os.mkfifo(place / "turns")
    os.mkfifo(place / "fifo")
    with (place / "messages").open("wb") as messages:
        started = [
            subprocess.Popen(command, cwd=place, stdout=messages, stderr=messages)
            for command in _commands(name, size, place, peers)
        ]
    return Contestant(name, place, started)


def _commands(name: str, size: int, place: Path, peers: Path | None) -> list[Command]:
    if name in _OPTIONS:
        folder = channel_folder(place, size, place / "turns", place / "log")
        wanted = RunOptions(frames=10**9, frame_timeout_s=LONG_S, **_OPTIONS[name])
        return [prepare(folder, wanted).command]
    program = Path(__file__).with_name("channel_peers.py")

    def command(way: str, part: str, python: Path | str = sys.executable) -> Command:
        return [python, program, way, part, place, str(size)]

    if name == FIFO:
        return [command("fifo", "receive"), command("fifo", "send")]
    if name == RAW:
        mpirun = [str(find_mpirun().path), "-n", "2", "--map-by", "slot:oversubscribe"]
        mpirun += ["--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        return [[*mpirun, *command("mpi", "both")]]
    assert peers is not None
    if name == ZENOH:
        return [command("zenoh", part, peers / "python") for part in ("send", "receive")]
    flow = place / "dataflow.yml"
    flow.write_text(dora_dataflow(peers / "python", program, place, size))
    return [[peers / "dora", "run", flow]]


def peers_environment(place: Path) -> Path | None:
    """Make an environment with zenoh and dora; return the folder of its programs.

    ``None``: they cannot be had here.
    """
    environment = place / "peers"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [environment / "bin" / "python", "-m", "pip", "install", "-qqq", *PEERS]
    return environment / "bin" if subprocess.run(pip).returncode == 0 else None


@dataclass(frozen=True, slots=True)
class Case:
    """Frames of one size at one gap."""

    size: str
    gap_ms: float


Solution: TypeAlias = dict[Case, dict[str, list[Turn]]]
"""By case and contestant: a turn per round. Contestants without gaps have each gap's."""


def measure(
    names: Sequence[str],
    sizes: Sequence[str],
    gaps_ms: Sequence[float],
    rounds: int,
    *,
    frames: int = FRAMES_A_TURN,
    peers: Path | None = None,
) -> Solution:
    """Let the contestants take turns, size by size, in an order that changes; return all turns."""
    chance = random.Random(0)
    results: Solution = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="rankslice-") as folder, ExitStack() as running:
            contestants = []
            for number, name in enumerate(names):
                place = Path(folder) / str(number)
                place.mkdir()
                started = begin(name, SIZES[size], place, peers)
                contestants.append(running.enter_context(started))
            schedule: list[tuple[Case, Contestant]] = []
            for number in range(rounds):
                start_round(number + 1, rounds)
                for gap_ms in gaps_ms:
                    chance.shuffle(contestants)
                    for contestant in contestants:
                        schedule.append((Case(size, gap_ms), contestant))
                        seconds = max(SHORTEST_TURN_S, (frames + SETTLES) * gap_ms / 1e3)
                        short = SHORTEST_TURN_S if contestant.name == RAW else seconds
                        contestant.take_turn(len(schedule), gap_ms / 1e3, short)
            for number, (case, contestant) in enumerate(schedule, 1):
                turns = results.setdefault(case, {}).setdefault(contestant.name, [])
                turns.append(contestant.turn(number))
    return results


def medians_us(turns: Sequence[Turn]) -> list[float]:
    """Return each turn's median from send to ready-to-run."""
    return [turn.median_us for turn in turns]


def limits_us(fifo: Sequence[Turn]) -> list[float]:
    """Return what a channel may take, given the FIFO's turns: 1.2 times as long and 30 us."""
    return [1.2 * us + 30 for us in medians_us(fifo)]


def report(results: Solution) -> None:
    """Print a table: a row for each contestant and case."""
    rows = []
    for case, turns in results.items():
        fifo = medians_us(turns[FIFO])
        for name, results_of in turns.items():
            all_us = np.concatenate([turn.ready_us for turn in results_of])
            rows.append(
                (
                    f"{case.size}, {case.gap_ms:g} ms, {name}",
                    spread(medians_us(results_of)).text(0),
                    ratios(medians_us(results_of), fifo).text(),
                    *(f"{value:.0f}" for value in np.percentile(all_us, (10, 90, 99))),
                    spread(turn.summed_median_us for turn in results_of).text(0),
                    spread(100 * turn.cpu_share for turn in results_of).text(2),
                    spread(turn.gap_ms for turn in results_of).text(2),
                )
            )
    columns = (
        "",
        "us, medians of turns",
        "to the FIFO",
        "p10",
        "p90",
        "p99",
        "until summed",
        "% of a core, receiver",
        "ms between frames",
    )
    print_table("From send to ready-to-run", columns, rows)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="turns of each")
    add("--frames", type=int, default=FRAMES_A_TURN, help="of a turn, at least")
    add("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="of frames")
    add("--gaps", nargs="+", type=float, default=GAPS_MS, metavar="MS", help="between frames")
    add("--latency", action="store_true", help="a job with --latency, too")
    add("--old", action="store_true", help="a job with --no-direct, too")
    add("--peers", action="store_true", help="zenoh and dora, too")
    args = parser.parse_args()
    console.print(machine(), style="dim")
    names = [JOB, FIFO, RAW]
    names += [LATENCY] * args.latency + [OLD] * args.old
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        peers = peers_environment(Path(folder)) if args.peers else None
        names += [ZENOH, DORA] if peers else []
        rounds, frames = args.rounds, args.frames
        results = measure(names, args.sizes, args.gaps, rounds, frames=frames, peers=peers)
    report(results)


if __name__ == "__main__":
    main()
