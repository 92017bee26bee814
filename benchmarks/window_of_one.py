"""What one frame at a time takes beyond its stages, per hop from rank to rank.

Jobs with ``--window 1`` over two, four or more ranks, in slices of equal work. Each rank's engine
notes when its runs begin and end (``gaps.py``), so that a hop is the time from the end of one
stage to the beginning of the next one, of the same frame. The way back is that from the end of the
last stage to the next frame's beginning: results, credit, and the reading of a frame. Beside them
stands a bare FIFO, in turns, with as long a gap between two tokens as there is between two frames.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from channel_time import FIFO, Contestant, begin
from gaps import read_log
from null_jobs import let_stamp
from pipeline_efficiency import even_mapping, model_of, store_frames
from timing import console, in_turns, machine, print_table, spread

from rankslice.backend.runtime.options import RunOptions
from rankslice.session.building.build import Build, BuildOptions, build
from rankslice.session.run import PreparedRun, prepare, run

NETWORKS = ("squeezenet", "mobilenetv2.tflite", "resnet50")
SETTLES = 5
"""Frames that are left out."""
FRAMES = 60
TOKENS = 30
"""Of the FIFO, in a turn."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A network in slices, ready to run."""

    network: str
    logs: tuple[Path, ...]
    """By rank."""
    prepared: PreparedRun

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.logs)


@dataclass(frozen=True, slots=True)
class Hops:
    """Medians over the frames of a run; microseconds, if nothing else is said."""

    hop_us: float
    """Of a frame, on average over its hops."""
    back_us: float
    """From the end of the last stage to the next frame."""
    stages_ms: float
    """Sum of a frame's stages."""
    period_ms: float
    """From frame to frame."""
    fifo_us: float
    """A token of the FIFO at this gap."""

    @property
    def limit_us(self) -> float:
        """What a hop may take."""
        return max(60.0, 1.2 * self.fifo_us + 30)


def build_slices(place: Path, network: str, ranks: int) -> tuple[Build, Path]:
    """Build a network in slices of about equal work, which share this machine's cores.

    Returns what was built, and a file with frames for it.
    """
    model = model_of(network)
    mapping = even_mapping(model, ranks)
    built = build(model, mapping, "local", place / "out", BuildOptions(share_cores=True))
    return built, store_frames(built.plan, place / "frames.npz")


def make_chain(place: Path, network: str, ranks: int) -> Chain:
    """Build a network in slices whose engines note their runs."""
    built, frames = build_slices(place, network, ranks)
    logs = tuple(place / f"{rank.rank}.log" for rank in built.plan.ranks)
    let_stamp(
        built.folder,
        built.plan,
        [
            {"inner": rank.engine, "log": str(log)}
            for rank, log in zip(built.plan.ranks, logs, strict=True)
        ],
    )
    wanted = RunOptions(inputs=(str(frames),), frames=FRAMES, window=1)
    return Chain(network, logs, prepare(built.folder, wanted))


def measure_hops(chain: Chain, fifo: Contestant, turns: Iterator[int]) -> Hops:
    """Run a chain once, then let the FIFO have a turn at its gap."""
    for log in chain.logs:
        log.unlink(missing_ok=True)
    run(chain.prepared)
    frames = chain.prepared.options.frames
    assert frames is not None
    # A rank's runs before the last frames are its warm-up.
    records = [read_log(log)[-frames:][SETTLES:] for log in chain.logs]
    begins, ends = (np.array([record[name] for record in records]) for name in ("ready", "done"))
    period_s = float(np.median(np.diff(begins[0]))) / 1e9
    turn = next(turns)
    fifo.take_turn(turn, period_s, TOKENS * period_s)
    return Hops(
        hop_us=float(np.median((begins[1:] - ends[:-1]).mean(axis=0))) / 1e3,
        back_us=float(np.median(begins[0, 1:] - ends[-1, :-1])) / 1e3,
        stages_ms=float(np.median((ends - begins).sum(axis=0))) / 1e6,
        period_ms=1e3 * period_s,
        fifo_us=fifo.turn(turn).median_us,
    )


def measure(networks: Sequence[str], ranks: Sequence[int], rounds: int) -> dict[Chain, list[Hops]]:
    """Return what each network takes over each number of ranks, round by round."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder, ExitStack() as running:
        place = Path(folder)
        chains = []
        for network in networks:
            for count in ranks:
                own = place / f"{network}-{count}"
                own.mkdir()
                chains.append(make_chain(own, network, count))
        beside = place / "fifo"
        beside.mkdir()
        fifo = running.enter_context(begin(FIFO, 0, beside, None))
        turns = itertools.count(1)
        jobs = {chain: partial(measure_hops, chain, fifo, turns) for chain in chains}
        return in_turns(rounds, jobs)


def report(results: dict[Chain, list[Hops]]) -> None:
    """Print what the rounds showed."""
    rows = [
        (
            f"{chain.network}, {chain.ranks} ranks",
            spread(hop.stages_ms for hop in hops).text(),
            spread(hop.period_ms for hop in hops).text(),
            spread(hop.hop_us for hop in hops).text(0),
            spread(hop.fifo_us for hop in hops).text(0),
            spread(hop.limit_us for hop in hops).text(0),
            spread(hop.back_us for hop in hops).text(0),
        )
        for chain, hops in results.items()
    ]
    columns = ("", "stages, ms", "frame, ms", "hop, us", "FIFO, us", "limit, us", "back, us")
    print_table("One frame at a time", columns, rows)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    usual = [2, 4] + [8] * (len(os.sched_getaffinity(0)) >= 8)
    add("--networks", nargs="+", default=NETWORKS, help="of the zoo, or NAME.tflite of Keras's")
    add("--ranks", type=int, nargs="+", default=usual, help="numbers of ranks")
    add("--rounds", type=int, default=5, help="runs of each")
    args = parser.parse_args()
    console.print(machine())
    report(measure(args.networks, args.ranks, args.rounds))


if __name__ == "__main__":
    main()
