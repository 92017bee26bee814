"""What to search for, and how: the options of ``rankslice explore``.

This imports nothing heavy, as the command line needs it for its help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankslice.exploration.objectives import check_objectives
from rankslice.framework.option_records import accelerator_keys, option
from rankslice.framework.platform import WIRES

_EVALUATIONS = {"simulator": 1000, "run": 50}
"""Default limits of how many mappings are simulated or run: some minutes."""

_MAX_BOARDS = 64
_MIN_POPULATION, _MAX_POPULATION = 8, 100


@dataclass(frozen=True, slots=True)
class GeneticOptions:
    """Settings of NSGA-II; the defaults are those of the AutoDiCE paper."""

    population: int = 100
    mutation: float = 0.1
    crossover: float = 0.5
    """Probability that two parents mix; their children are copies otherwise."""
    generations: int = 400
    seed: int = 0


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for word in text.split(",") if (name := word.strip()))


def _numbers(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    ends = [first, last if dash else first]
    if not all(end.isascii() and end.isdigit() for end in ends):
        raise ValueError("expected two numbers of boards, such as 1-8")
    low, high = map(int, ends)
    if not 0 < low <= high <= _MAX_BOARDS:
        raise ValueError(f"expected numbers of boards from 1 to {_MAX_BOARDS}, the smaller first")
    return low, high


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What to search for, and how."""

    method: str = option(
        "exact",
        "Search method. exact: optimal contiguous slices, then improved; nsga2: genetic algorithm"
        " over all mappings; exhaustive: every mapping, for small cases.",
        ("exact", "nsga2", "exhaustive"),
    )
    objectives: tuple[str, ...] = option(
        ("throughput", "energy", "memory"),
        "Objectives: throughput, energy, memory (of the worst board), latency.",
        _names,
        metavar="NAME,NAME",
        shown="throughput,energy,memory",
    )
    fps: float | None = option(
        None, "Required frame rate, for a recommendation.", float, least=1e-3, most=1e9
    )
    surge_fps: float | None = option(
        None,
        "With --fps: frame rate during a surge; recommends one mapping for each rate, for 'build"
        " --surge'.",
        float,
        least=1e-3,
        most=1e9,
        needs="fps",
        above="fps",
    )
    turns: int = option(
        1,
        "Maximum number of accelerators of one kind that take frames in turn on the same layers.",
        int,
        least=1,
        most=64,
    )
    accelerators: tuple[str, ...] = option(
        (),
        "Mapping keys to use (default: those measured).",
        accelerator_keys,
        metavar="KEY,KEY,...",
    )
    per_core: bool = option(False, "Use single CPU cores only.")
    scaling: tuple[int, int] | None = option(
        None,
        "Explore so many equal boards instead of the platform's, such as 1-8, and show how the rate"
        " grows with their number; the measurements of one stand for all.",
        _numbers,
        metavar="N-M",
        needs="profile",
        excludes=("evaluate",),
    )
    like: str = option(
        "",
        "The board of the platform that they are like (default: its first).",
        str,
        metavar="BOARD",
        needs="scaling",
    )
    splits: bool = option(
        False,
        "Also split layers over accelerators, by rows and by outputs, and run the model on"
        " accelerators in turn; compare these strategies with pipelines.",
        excludes=("scaling", "surge_fps"),
    )
    wire: str | None = option(
        None,
        "Type of float32 tensors between boards (default: that of each link in the platform file)."
        " auto: float16 where a link limits the rate, else float32. The choice is written to the"
        " folder as platform.yaml.",
        ("auto", *WIRES),
        excludes=("scaling",),
    )
    population: int | None = option(
        None,
        "nsga2: population size (default: 100; if simulated or run, the square root of"
        " --evaluations).",
        int,
        least=4,
        most=100_000,
    )
    mutation: float = option(0.1, "nsga2: mutation probability.", float, least=0, most=1)
    crossover: float = option(0.5, "nsga2: crossover probability.", float, least=0, most=1)
    generations: int | None = option(
        None,
        "nsga2: number of generations (default: 400; if simulated or run, until --evaluations is"
        " reached).",
        int,
        least=1,
        most=1_000_000,
    )
    seed: int = option(0, "nsga2: random seed.", int, least=0)
    coarse: bool = option(False, "Move blocks of layers first, then single layers.")
    evaluate: str = option(
        "model",
        "How to evaluate mappings. model: cost model; simulator: simulate each; run: build, deploy"
        " and run each. nsga2 and exhaustive use these figures in the search; exact uses the cost"
        " model, and then ranks its result by these figures.",
        ("model", "simulator", "run"),
    )
    evaluations: int | None = option(
        None,
        "Maximum number of mappings to simulate (default: 1000) or run (default: 50).",
        int,
        least=1,
        most=1_000_000,
        alias=("--runs",),
        needs="evaluate",
    )
    frames: int | None = option(
        None,
        "Frames per simulation (default: 100) or run (default: 3 seconds' worth).",
        int,
        least=1,
        needs="evaluate",
    )
    keep: int = option(
        24, "Maximum number of mappings of the front to write.", int, least=1, most=99
    )

    def __post_init__(self) -> None:
        """Check the objectives.

        Raises:
            RankSliceError: one is unknown, or not known to what evaluates mappings.
        """
        check_objectives(self.objectives, self.evaluate)

    @property
    def trials(self) -> int:
        """How many mappings are simulated or run at most."""
        return self.evaluations or _EVALUATIONS.get(self.evaluate, 0)

    @property
    def genetics(self) -> GeneticOptions:
        """Settings of NSGA-II: those of the paper, or those for few and costly evaluations.

        A population is then the square root of the number of evaluations.
        """
        usual = GeneticOptions()
        population, generations = usual.population, usual.generations
        if self.evaluate != "model":
            population = min(max(_MIN_POPULATION, math.isqrt(self.trials)), _MAX_POPULATION)
            # A child that was evaluated before costs nothing, so there may be more generations.
            generations = 2 * math.ceil(self.trials / population)
        return GeneticOptions(
            self.population or population,
            self.mutation,
            self.crossover,
            self.generations or generations,
            self.seed,
        )
