"""What channels of fixed size cost in a source tree, against an earlier one.

    git worktree add ../before f6beb93
    python benchmarks/fixed_sizes.py before=../before now=.

Both trees build a job of two ranks with messages of 4 kB, and run it in turn: on shared memory, and
with ``--no-direct`` through MPI. Rank 1 has channels and a segment alone; rank 0 has two segments,
source and sink as well. System calls and allocations are those of a frame and rank.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from counted import ALLOCATIONS, SYSTEM_CALLS, let_count, per_frame, why_not
from message_cost import CORES
from runtime_overhead import FRAME
from timing import console, machine, print_table, ratios, spread, start_round
from two_builds import Tree, tree

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
there_and_back (float[1,1024] x) => (float[1,1024] y) {
  there = Relu (x)
  back = Relu (there)
  y = Relu (back)
}
"""
WAYS = {"shared memory": (), "MPI": ("--no-direct",)}


def build(place: Path, source: Tree) -> Path:
    """Build the job with a tree; return the folder."""
    model = onnx.parser.parse_model(MODEL)
    for node, name in zip(model.graph.node, ("first", "second", "third"), strict=True):
        node.name = name
    onnx.save(model, place / "model.onnx")
    np.savez(place / FRAME, x=np.ones((1, 1024), np.float32))
    mapping = dict(zip(CORES, (["first", "third"], ["second"]), strict=True))
    (place / "mapping.json").write_text(json.dumps(mapping))
    out = place / source.name
    options = ("--mapping", place / "mapping.json", "--platform", "local", "--out", out)
    source.rankslice("build", place / "model.onnx", *options)
    let_count(out)
    return out


def run(source: Tree, out: Path, options: tuple[str, ...], frames: int) -> float:
    """Run a tree's job; return the frames per second."""
    report = out.with_suffix(".json")
    given = ("--input", out.parent / FRAME, "--frames", str(frames), "--json", report, *options)
    source.rankslice("run", out, *given)
    return float(json.loads(report.read_text())["throughput_fps"])


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("before", type=tree, metavar="NAME=FOLDER", help="source tree")
    add("now", type=tree, metavar="NAME=FOLDER", help="source tree to compare with it")
    add("--frames", type=int, default=20_000, help="per run")
    add("--rounds", type=int, default=20, help="runs of each")
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="how ranks exchange frames")
    add("--counts", type=int, default=3, help="counted pairs of runs of each")
    given = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    console.print(machine())
    rows = []
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        trees = (given.before, given.now)
        outs = [build(Path(folder), each) for each in trees]
        for way in given.ways:
            options = WAYS[way]
            jobs: list[Callable[[int], float]] = [
                partial(run, each, out, options) for each, out in zip(trees, outs, strict=True)
            ]
            counted = [
                [
                    [per_frame(job, kind, 2, given.frames) for _ in range(given.counts)]
                    for kind in (SYSTEM_CALLS, ALLOCATIONS)
                ]
                for job in jobs
            ]
            rates: list[list[float]] = [[], []]
            for number in range(given.rounds):
                start_round(number + 1, given.rounds, 0)
                for place in (0, 1) if number % 2 == 0 else (1, 0):
                    rates[place].append(jobs[place](given.frames))
            for each, kinds, rate in zip(trees, counted, rates, strict=True):
                counts = [
                    ", ".join(f"{median(of_rank):.2f}" for of_rank in zip(*found, strict=True))
                    for found in kinds
                ]
                ratio = ratios(rate, rates[0]).text(3)
                rows.append((f"{way}, {each.name}", *counts, spread(rate).text(0), ratio))
    columns = ("", "system calls", "allocations", "frames/s", "to the first, 95 %")
    print_table("Of a frame, by rank", columns, rows)


if __name__ == "__main__":
    main()
