"""How long the simulator and the cost model take, by the number of ranks and of layers.

python benchmarks/simulating.py
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray
from timing import console, machine, print_table

from rankslice.backend.runtime.job import Job, Rank, Receive, Segment, Send, Tensor
from rankslice.exploration.cost.cost_model import evaluate
from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import Problem, explored_layers
from rankslice.exploration.problem.runtime_costs import DEFAULT_OVERHEADS, LinkSpeeds
from rankslice.exploration.simulator.simulator import jittered, simulate
from rankslice.framework.plan import ModelInfo, Plan
from rankslice.framework.platform import Accelerator, Board, Link, Platform
from rankslice.frontend.formats import read_model
from rankslice.networks.zoo import zoo_model

RANKS = (10, 100, 1000, 4000)
FRAMES = 100
PER_BOARD = 4
GIGABIT = Link(bandwidth_mbps=1000, latency_ms=0.2)


def chain(ranks: int) -> Plan:
    """Return the plan of that many ranks in a row, four on each board."""
    names = tuple(f"t{number}" for number in range(ranks + 1))
    tensors = tuple(Tensor(name, "float32", (1, 25_000)) for name in names)
    job = Job(
        "chain", 2 * ranks, 0, ranks - 1, tensors[:1], tensors[1:-1], tensors[-1:],
        tuple(_rank(rank, ranks, names) for rank in range(ranks)),
    )  # fmt: skip
    return Plan(ModelInfo("chain", "", "onnx"), job, (), minimal=True)


def _rank(rank: int, ranks: int, names: tuple[str, ...]) -> Rank:
    board, core = divmod(rank, PER_BOARD)
    name = f"board{board}"
    segment = Segment(f"submodels/{rank}.onnx", names[rank : rank + 1], names[rank + 1 : rank + 2])
    return Rank(
        rank, f"{name}_cpu{core}", name, name, "cpu", (core,), "onnxruntime",
        receives=(Receive(names[rank], rank - 1),) if rank else (),
        runs=(segment,),
        sends=(Send(names[rank + 1], rank + 1),) if rank + 1 < ranks else (),
    )  # fmt: skip


def simulated(ranks: int) -> tuple[str, ...]:
    """Simulate a chain; return a row of the table."""
    plan = chain(ranks)
    boards = dict.fromkeys(rank.board for rank in plan.ranks)
    platform = Platform("boards", tuple(Board(name, name) for name in boards), GIGABIT)
    random = np.random.default_rng(0)
    times = [jittered(0.01, 0.1, FRAMES, random) for _ in plan.segments]
    begin = time.perf_counter()
    simulated = simulate(
        plan, times, LinkSpeeds(platform), frames=FRAMES, overheads=DEFAULT_OVERHEADS
    )
    took = time.perf_counter() - begin
    steps = FRAMES * ranks
    return (
        str(ranks),
        str(FRAMES),
        f"{took:.2f}",
        f"{1e6 * took / steps:.1f}",
        f"{simulated.duration_s / took:.0f}",
    )


def densenet() -> Problem:
    """Return DenseNet-121 on eight boards with a CPU and a GPU each."""
    graph = read_model(zoo_model("densenet121")).graph
    boards = tuple(
        Board(f"board{n}", f"board{n}", cores=tuple(range(6)), memory_mb=8192, idle_w=3, busy_w=15,
              gpus=(Accelerator("onnxruntime"),))
        for n in range(8)
    )  # fmt: skip
    random = np.random.default_rng(0)
    times: NDArray[np.float64] = random.uniform(1e-5, 3e-4, (2, len(explored_layers(graph))))
    return make_problem(graph, Platform("boards", boards, GIGABIT), times)


def evaluated(problem: Problem, what: str, *, latency: bool) -> tuple[str, ...]:
    """Evaluate generations of a hundred; return a row of the table."""
    random = np.random.default_rng(0)
    layers, devices = len(problem.layers), len(problem.devices)
    random_rows = random.integers(0, devices, (100, layers))
    cuts = np.sort(random.integers(0, layers, (100, devices - 1)), axis=1)
    slices = (np.arange(layers)[np.newaxis, :, np.newaxis] >= cuts[:, np.newaxis]).sum(axis=2)
    population = slices if what == "slices" else random_rows
    evaluate(problem, population, latency=latency)
    begin = time.perf_counter()
    for _ in range(5):
        evaluate(problem, population, latency=latency)
    took = (time.perf_counter() - begin) / 500
    return (what, "with" if latency else "without", f"{1e6 * took:.0f}", f"{40_000 * took:.1f}")


def main() -> None:
    """Take the command line, measure, print."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    console.print(machine())
    print_table(
        "Simulating a chain of ranks, four on each board",
        ("ranks", "frames", "seconds", "us per step of a rank", "times faster than the job"),
        [simulated(ranks) for ranks in RANKS],
    )
    problem = densenet()
    print_table(
        f"Evaluating mappings of {len(problem.layers)} layers to {len(problem.devices)} devices",
        ("layers", "latency", "us each", "seconds for 40,000"),
        [evaluated(problem, what, latency=late) for what in ("slices", "random")
         for late in (False, True)],
    )  # fmt: skip


if __name__ == "__main__":
    main()
