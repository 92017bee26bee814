"""How long it takes to find the fewest segments, and whether they are proven to be.

Networks of the ``onnx`` wheel, their layers dealt out to ranks in several ways: ``contiguous``
gives each rank one run of layers, ``clustered`` many short ones, ``interleaved`` every n-th layer,
and ``random`` draws each layer's rank. ``grid`` is no network but the hardest graph we know for
this search: cells that read from their left and upper neighbours.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from timing import console, machine, print_table, spread

from rankslice.framework.graph import ByteRange, Graph, Layer, Tensor
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.frontend.partition.partition import Partition, partition
from rankslice.networks.zoo import zoo_model, zoo_names

GRID = "grid"


@dataclass(frozen=True, slots=True)
class Measured:
    """A partition, and how long each of several searches for it took."""

    seconds: tuple[float, ...]
    found: Partition


def contiguous(layers: int, ranks: int) -> list[int]:
    """Give each rank one run of layers."""
    return [layer * ranks // layers for layer in range(layers)]


def interleaved(layers: int, ranks: int) -> list[int]:
    """Give each rank every n-th layer."""
    return [layer % ranks for layer in range(layers)]


def drawn(layers: int, ranks: int) -> list[int]:
    """Draw each layer's rank."""
    draw = random.Random(0)
    return [draw.randrange(ranks) for _ in range(layers)]


def clustered(layers: int, ranks: int) -> list[int]:
    """Draw ranks for runs of about ten layers."""
    draw = random.Random(0)
    dealt = [0]
    while len(dealt) < layers:
        dealt.append(draw.randrange(ranks) if draw.random() < 0.1 else dealt[-1])
    return dealt


WAYS: dict[str, Callable[[int, int], list[int]]] = {
    "contiguous": contiguous,
    "clustered": clustered,
    "interleaved": interleaved,
    "random": drawn,
}


def grid(side: int) -> Graph:
    """Return ``side`` x ``side`` layers, each reading from its left and its upper neighbour."""
    made = {cell: Tensor(f"{cell}", "float32", (1,)) for cell in product(range(side), range(side))}
    start = Tensor("x", "float32", (1,))
    nowhere = ByteRange(Path("grid"), 0, 0)
    layers = []
    for (row, column), tensor in made.items():
        near = [made.get((row - 1, column)), made.get((row, column - 1))]
        inputs = tuple(tensor for tensor in near if tensor is not None) or (start,)
        layers.append(Layer(f"layer {tensor.name}", "Op", inputs, (tensor,), (), nowhere))
    return Graph("grid", "onnx", tuple(layers), (start,), (made[side - 1, side - 1],), ())


def graphs(names: Sequence[str], side: int) -> Iterator[Graph]:
    """Yield the graphs by name."""
    for name in names:
        yield grid(side) if name == GRID else read_onnx(zoo_model(name)).graph


def measure(graph: Graph, ranks: Sequence[int], rounds: int) -> Measured:
    """Partition a graph several times."""
    rank_of = dict(zip((layer.name for layer in graph.layers), ranks, strict=True))
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        parts = partition(graph, rank_of)
        seconds.append(time.perf_counter() - begin)
    return Measured(tuple(seconds), parts)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    known = [*zoo_names(), GRID]
    add("--models", nargs="+", default=["densenet121", "inception_v2", GRID], choices=known)
    add("--ranks", nargs="+", type=int, default=[2, 4, 24], help="numbers of ranks")
    add("--rounds", type=int, default=3, help="how often each partition is made")
    add("--side", type=int, default=20, help="of the grid")
    args = parser.parse_args()
    console.print(machine())
    for graph in graphs(args.models, args.side):
        rows = []
        for ranks, (way, deal) in product(args.ranks, WAYS.items()):
            result = measure(graph, deal(len(graph.layers), ranks), args.rounds)
            proven = "yes" if result.found.minimal else "no"
            seconds = spread(result.seconds).text(3)
            rows.append((way, str(ranks), seconds, str(len(result.found.segments)), proven))
        title = f"{graph.name}, {len(graph.layers)} layers, {args.rounds} rounds"
        print_table(title, ("", "ranks", "seconds", "segments", "proven fewest"), rows)


if __name__ == "__main__":
    main()
