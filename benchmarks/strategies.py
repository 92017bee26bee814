"""Which strategy is best for what: the best mappings of each, for four networks on several boards.

A comparison like that of E. Tang, X. Guo and T. Stefanov, "The Effects of Partitioning Strategies
on Energy Consumption in Distributed CNN Inference at The Edge" (arXiv:2210.08392): the whole model
on each board in turn, slices of layers, and layers that are split, by rows or by outputs. Each
network is profiled on a core of this machine. Boards have one such core, a link of 1 Gbit/s, and
made-up power figures; rates are simulated. Latency is that of a frame that is alone.

With ``--boards`` the best mappings of the first network by rate and by latency also run on two
virtual boards. Profiles are kept in the folder; with ``--again`` they are measured once more.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from across_boards import Boards, Job, boards_if, build_for, keys_of
from prediction import CORES, measure_profile, profile_file
from timing import console, in_turns, machine, print_table, spread

from rankslice.commands.explore.explore import Explorer
from rankslice.exploration.objectives import OBJECTIVES, columns
from rankslice.exploration.results.candidates import Candidate, Figures
from rankslice.exploration.search.search_options import SearchOptions
from rankslice.framework.profile import profile_from_json, profile_to_json
from rankslice.networks.zoo import zoo_model

NETWORKS = ("alexnet", "vgg19", "resnet50", "squeezenet")
IDLE_W, BUSY_W = 2.0, 5.0
LINK = {"bandwidth_mbps": 1000, "latency_ms": 0.2}


def explored(
    network: str, folder: Path, keys: Sequence[str], frames: int
) -> dict[str, list[Candidate]]:
    """Return the mappings of each strategy on boards with these keys, one on each board."""
    profile = profile_from_json(profile_file(network, folder).read_text(), network)
    core = profile.kind_of(CORES[0])
    assert core is not None
    of_boards = replace(profile, kinds=(replace(core, key=keys[0], keys=tuple(keys)),))
    cores = 1 + max(int(key.rpartition("cpu")[2]) for key in keys)
    board = {"cores": cores, "idle_w": IDLE_W, "busy_w": BUSY_W}
    names = [key.rpartition("_")[0] for key in keys]
    boards = {name: {"host": name, **board} for name in names}
    out = folder / f"{network}-{len(keys)}"
    known, platform = out.with_suffix(".profile.json"), out.with_suffix(".yaml")
    known.write_text(profile_to_json(of_boards))
    platform.write_text(json.dumps({"boards": boards, "links": {"default": LINK}}))
    search = SearchOptions(
        accelerators=tuple(keys), splits=True, evaluate="simulator", frames=frames
    )
    explorer = Explorer(
        zoo_model(network), str(platform), out, search, profile_file=known, force=True
    )
    by_strategy: dict[str, list[Candidate]] = {}
    for candidate in explorer.explore().candidates:
        # What is simulated is a full pipeline; what is predicted, a frame that is alone.
        alone_s = candidate.figures[0].latency_s
        figures = replace(candidate.best_known, latency_s=alone_s)
        own = by_strategy.setdefault(candidate.strategy, [])
        own.append(replace(candidate, figures=(figures,)))
    return by_strategy


def rows(by_strategy: dict[str, list[Candidate]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each strategy: its best values, with a star where none is better."""
    everything = [candidate for own in by_strategy.values() for candidate in own]
    for strategy, own in by_strategy.items():
        cells = []
        for row in columns():
            best = min(own, key=row.cost_of)
            is_best = row.cost_of(best) <= min(map(row.cost_of, everything))
            cells.append(row.cell(best, best.best_known, "-") + " *" * is_best)
        yield strategy, *cells


def measure(job: Job, frames: int) -> tuple[float, float, float]:
    """Return frames/s, the latency of one frame at a time in ms, and the largest rank's MB."""
    job.deploy()  # boards keep the packages of a few jobs
    full, alone = job.run(frames), job.run(frames, window=1)
    memory = max(rank.memory_mb for rank in full.ranks)
    return full.throughput_fps, alone.latency_ms["p50"], memory


def measured(
    boards: Boards | None, keys: Sequence[str], network: str, args: argparse.Namespace
) -> Iterator[tuple[str, ...]]:
    """Yield a row for the best mapping of each strategy by rate, and another one by latency."""
    predicted: dict[tuple[str, int], Figures] = {}
    jobs: dict[tuple[str, int], Job] = {}
    for strategy, own in explored(network, args.folder, keys, args.frames).items():
        for candidate in (min(own, key=OBJECTIVES[by].cost_of) for by in ("throughput", "latency")):
            name = strategy, candidate.number
            predicted[name] = candidate.best_known
            place = args.folder / f"{network}-job{candidate.number}"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            jobs[name] = build_for(boards, place, zoo_model(network), candidate.mapping)
    runs = {name: partial(measure, job, args.frames) for name, job in jobs.items()}
    for name, values in in_turns(args.rounds, runs).items():
        rate, latency, memory = (spread(side) for side in zip(*values, strict=True))
        yield (
            *(name[0], f"{predicted[name].throughput_fps:.2f}", rate.text(2)),
            *(f"{1e3 * (predicted[name].latency_s or 0):.1f}", latency.text(1)),
            f"{memory.value:.0f}",
        )


def main() -> None:
    """Take the command line, explore, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("networks", nargs="*", default=NETWORKS, help=", ".join(NETWORKS))
    add("--folder", type=Path, default=Path("strategies"), help="for profiles and mappings")
    add("--counts", default="2,3,4", help="numbers of boards")
    add("--again", action="store_true", help="measure profiles once more")
    add("--boards", action="store_true", help="run the first network on two virtual boards")
    add("--frames", type=int, default=100, help="of each simulation and run")
    add("--rounds", type=int, default=5, help="runs of each mapping")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    console.print(machine())
    for network in args.networks:
        if args.again or not profile_file(network, args.folder).exists():
            measure_profile(network, args.folder)
    table = []
    for network in args.networks:
        for count in map(int, args.counts.split(",")):
            keys = [f"board{number}_cpu0" for number in range(1, count + 1)]
            found = explored(network, args.folder, keys, args.frames)
            table += [(network, str(count), *row) for row in rows(found)]
    head = ("network", "boards", "strategy", *(row.head for row in columns()))
    print_table("simulated; *: no strategy is better; memory, energy: worst board", head, table)
    if args.boards:
        network = args.networks[0]
        with boards_if(2) as boards:
            table = [*measured(boards, keys_of(boards, 2), network, args)]
        head = ("strategy", "frames/s", "measured", "latency, ms", "measured", "largest rank, MB")
        print_table(f"{network} on two virtual boards: simulated and measured", head, table)


if __name__ == "__main__":
    main()
