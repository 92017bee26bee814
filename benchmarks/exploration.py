"""How long NSGA-II takes on a large network, and how good what it finds is.

DenseNet-121 has 910 layers; eight boards have a CPU and a GPU each. What layers take is made up: a
CPU has a rate for multiplications and one for bytes, a GPU is faster but pays for each layer. The
search is asked for throughput, and for energy and memory of the board that needs most.

How good the front is can be told where the whole one is known: for small cases, by trying every
mapping. What is compared is the hypervolume, the part of all that is worse than the best of
everything that the front beats, up to what is worst on the whole front.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from timing import console, machine, print_table, spread

from rankslice.exploration.cost.cost_model import evaluate
from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import Problem, explored_layers
from rankslice.exploration.results.front import Population, Scores
from rankslice.exploration.search.nsga2 import nsga2
from rankslice.exploration.search.search_options import GeneticOptions
from rankslice.exploration.search.seeds import balanced_seeds, planned_seeds
from rankslice.exploration.search.space import Search, SearchSpace, exhaustive, scorer, space_of
from rankslice.framework.graph import Graph
from rankslice.framework.platform import Accelerator, Board, Link, Platform
from rankslice.frontend.costs.costs import layer_costs
from rankslice.frontend.formats import read_model
from rankslice.networks.zoo import zoo_model

Floats = NDArray[np.float64]

OBJECTIVES = ("throughput", "energy", "memory")
CPU_MACS_S, CPU_BYTES_S = 30e9, 5e9
GPU_MACS_S, GPU_BYTES_S, GPU_LAYER_S = 200e9, 20e9, 20e-6


def boards(count: int) -> Platform:
    """Return boards with a CPU and a GPU each, in a switched gigabit network."""
    return Platform(
        "boards.yaml",
        tuple(
            Board(
                f"edge{number:02}",
                f"edge{number:02}",
                cores=(0, 1, 2, 3),
                memory_mb=8192,
                gpus=(Accelerator("onnxruntime"),),
                idle_w=5.0,
                busy_w=15.0,
            )
            for number in range(1, count + 1)
        ),
        Link(bandwidth_mbps=1000, latency_ms=0.2),
    )


def made_up_times(graph: Graph) -> NDArray[np.float64]:
    """Return (2, layers): what layers take on a CPU and on a GPU, in seconds."""
    costs = {cost.layer: cost for cost in layer_costs(graph)}
    layers = explored_layers(graph)
    macs = np.array([costs[layer.name].macs or 0 for layer in layers])
    moved = np.array(
        [sum(tensor.nbytes or 0 for tensor in (*layer.inputs, *layer.outputs)) for layer in layers]
    )
    cpu = np.maximum(macs / CPU_MACS_S, moved / CPU_BYTES_S)
    gpu = np.maximum(macs / GPU_MACS_S, moved / GPU_BYTES_S) + GPU_LAYER_S
    return np.stack([cpu, gpu])


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search took, and what it found."""

    seconds: float
    fastest_fps: float
    evaluations: int
    front: int


def search_large(seed: int, *, coarse: bool, genetics: GeneticOptions) -> tuple[Searched, float]:
    """Search for mappings of DenseNet-121; return what it took, and the exact planner's rate."""
    problem = problem_of("densenet121", boards(8))
    exact = planned_seeds(problem)
    planned = 1 / float(evaluate(problem, exact, latency=False).bottleneck_s.min())
    begin = time.perf_counter()
    space = space_of(problem, OBJECTIVES, coarse=coarse)
    seeds = np.concatenate([exact, balanced_seeds(problem)])
    archive = nsga2(Search(scorer(problem, OBJECTIVES), space), replace(genetics, seed=seed), seeds)
    seconds = time.perf_counter() - begin
    evaluations = genetics.population * genetics.generations
    return (
        Searched(seconds, 1 / float(archive.values[:, 0].min()), evaluations, len(archive.values)),
        planned,
    )


def problem_of(network: str, platform: Platform) -> Problem:
    graph = read_model(zoo_model(network)).graph
    return make_problem(graph, platform, made_up_times(graph))


def hypervolume(values: Floats, best: Floats, worst: Floats) -> float:
    """Return the share of the box from ``best`` to ``worst`` that a front beats."""
    from pymoo.indicators.hv import HV

    scaled = (values - best) / (worst - best)
    return float(HV(ref_point=np.ones(len(best)))(scaled))


def compare_with_whole_front(
    blocks: int, seeds: Sequence[int], genetics: GeneticOptions
) -> list[float]:
    """Return what share of the whole front's hypervolume NSGA-II finds, without exact seeds.

    Mappings keep blocks of layers together, so that all of them can be tried.
    """
    problem = problem_of("squeezenet", boards(2))
    score = scorer(problem, OBJECTIVES)
    layers = np.arange(len(problem.layers))
    block_of = layers * blocks // len(layers)
    small = SearchSpace(blocks, len(problem.devices), len(OBJECTIVES))

    def score_blocks(population: Population) -> Scores:
        return score(population[:, block_of])

    whole = exhaustive(Search(score_blocks, small)).values
    best, worst = whole.min(axis=0), whole.max(axis=0)
    # So that the ends of the front count, too.
    worst = worst + 0.1 * (worst - best)
    reached = hypervolume(whole, best, worst)
    return [
        hypervolume(
            nsga2(Search(score_blocks, small), replace(genetics, seed=seed)).values, best, worst
        )
        / reached
        for seed in seeds
    ]


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--seeds", type=int, default=3, help="searches of each kind")
    add("--generations", type=int, default=400)
    add("--population", type=int, default=100)
    add("--blocks", type=int, default=8, help="of the network whose whole front is known")
    args = parser.parse_args()
    genetics = GeneticOptions(population=args.population, generations=args.generations)
    console.print(machine())
    rows = []
    for coarse in (False, True):
        results = [
            search_large(seed, coarse=coarse, genetics=genetics) for seed in range(args.seeds)
        ]
        searched = [result for result, _ in results]
        rows.append(
            (
                "blocks, then layers" if coarse else "layers",
                f"{searched[0].evaluations}",
                spread(search.seconds for search in searched).text(1),
                spread(search.fastest_fps for search in searched).text(2),
                f"{results[0][1]:.2f}",
                spread(search.front for search in searched).text(0),
            )
        )
    columns = (
        "genes",
        "evaluations",
        "seconds",
        "fastest, frames/s",
        "exact plan, frames/s",
        "front",
    )
    print_table("DenseNet-121 on 8 boards with CPU and GPU", columns, rows)
    shares = compare_with_whole_front(args.blocks, range(args.seeds), genetics)
    row = (f"SqueezeNet, {args.blocks} blocks, 2 boards with CPU and GPU", spread(shares).text(4))
    print_table("Hypervolume", ("case", "share of the whole front's"), [row])


if __name__ == "__main__":
    main()
