"""What split layers gain: the latency of a frame alone in the job, and the memory of a rank.

VGG-19, one frame at a time: on one core, and on two by rows. Each of the five stages of
convolutions is a block, with halos computed twice or exchanged; the two large fully connected
layers are split by outputs. For memory, only the first of these (FC6) is by outputs. With
``--boards`` each core is that of a virtual board, and messages cross cables of 1 Gbit/s.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from across_boards import Job, boards_if, build_for, keys_of
from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.frontend.formats import read_model
from rankslice.networks.zoo import zoo_model

Items = list[Any]
"""Of a mapping's key."""

LATENCY, MEMORY = 0.65, 0.6
"""Targets: at most so much of one core's."""


def mappings(keys: Sequence[str]) -> dict[str, dict[str, Items]]:
    """Return the mappings of VGG-19 that are compared, by name; the first is the reference."""
    layers = read_model(zoo_model("vgg19")).graph.layers
    names = [layer.name for layer in layers]
    pools = [number for number, layer in enumerate(layers) if layer.op == "MaxPool"]
    fc6, fc7 = [number for number, layer in enumerate(layers) if layer.op == "Gemm"][:2]
    starts = (0, *(pool + 1 for pool in pools))
    stages = [f"{names[a]}..{names[b]}" for a, b in zip(starts, pools, strict=False)]
    connected = [f"{names[number]}..{names[number + 1]}" for number in (fc6, fc7)]
    left = [n for n in names[pools[-1] + 1 :] if names.index(n) not in {fc6, fc6 + 1, fc7, fc7 + 1}]

    def split(halo: str) -> dict[str, Items]:
        parts: Items = [{"layers": [s], "by": "rows", "halo": halo} for s in stages]
        parts += [{"layers": [s], "by": "outputs"} for s in connected]
        return {key: parts + left * (key == keys[-1]) for key in keys}

    part: Items = [{"layers": [names[fc6]], "by": "outputs"}]
    return {
        "one core": {keys[0]: [f"{names[0]}..{names[-1]}"]},
        "rows, halo recomputed": split("recompute"),
        "rows, halo exchanged": split("exchange"),
        "FC6 by outputs": {
            keys[0]: [f"{names[0]}..{names[fc6 - 1]}", *part],
            keys[1]: [*part, f"{names[fc6 + 1]}..{names[-1]}"],
        },
    }


def measure(job: Job, frames: int) -> tuple[float, float]:
    """Return the median latency of one frame at a time, in ms, and the largest rank's MB."""
    summary = job.run(frames, window=1)
    return summary.latency_ms["p50"], max(rank.memory_mb for rank in summary.ranks)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--boards", action="store_true", help="a virtual board for each core")
    add("--frames", type=int, default=20, help="of each run")
    add("--rounds", type=int, default=5, help="runs of each")
    args = parser.parse_args()
    console.print(machine())
    with (
        tempfile.TemporaryDirectory(prefix="rankslice-") as place,
        boards_if(2 * args.boards) as boards,
    ):
        jobs = {}
        for number, (name, mapping) in enumerate(mappings(keys_of(boards, 2)).items()):
            folder = Path(place, str(number))
            folder.mkdir()
            jobs[name] = build_for(boards, folder, zoo_model("vgg19"), mapping)
            jobs[name].deploy()
        runs = {name: partial(measure, job, args.frames) for name, job in jobs.items()}
        measured = in_turns(args.rounds, runs)
    first = measured["one core"]
    rows = []
    for name, pairs in measured.items():
        latency, memory = (
            ratios([pair[side] for pair in pairs], [pair[side] for pair in first])
            for side in (0, 1)
        )
        rows.append(
            (
                name,
                spread(pair[0] for pair in pairs).text(1),
                latency.text(3),
                f"{spread(pair[1] for pair in pairs).value:.0f}",
                memory.text(3),
            )
        )
    title = f"VGG-19, one frame at a time; targets: latency {LATENCY}, memory by outputs {MEMORY}"
    print_table(title, ("mapping", "latency, ms", "ratio", "largest rank, MB", "ratio"), rows)


if __name__ == "__main__":
    main()
