"""AutoDiCE's Figure 4, Table II and Figure 5 made again, from profiles that are measured here.

DenseNet-121, ResNet-101 and VGG-19 are profiled on one core of this machine and on two. From this
come boards as in the paper, one to eight: a CPU of which one core or all may be used, a GPU, and a
cable of 1 Gbit/s. Their GPU is this machine's CPU, faster by what the paper's one-board figures
say. NSGA-II then searches with the paper's settings; what is selected is simulated.

With ``--speed paper`` all times of a network are scaled, too, so that it takes on one board's CPU
what it takes in the paper: computing and sending are in the paper's proportion. With ``--speed
here`` the CPU is as fast as it was measured.

Steps can be taken one at a time; what each finds is kept in the folder, and gone on with:

    python benchmarks/autodice_figures.py profile densenet121
    python benchmarks/autodice_figures.py profile densenet121 --again
    python benchmarks/autodice_figures.py search densenet121
    python benchmarks/autodice_figures.py report --plots docs/images

Source of the paper's figures: see ``autodice_paper.py``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from autodice_paper import ENDS, OBJECTIVES, TABLE_2, TITLES, Point, Solution
from autodice_plots import draw_boards, draw_fronts
from front_end import OTHERS
from numpy.typing import NDArray
from timing import console, machine

from rankslice.backend.runtime.options import RunOptions
from rankslice.exploration.cost.cost_model import evaluate
from rankslice.exploration.cost.prediction import Prediction, predict
from rankslice.exploration.problem.make_problem import profiled_problem
from rankslice.exploration.problem.problem import Problem, mapping_of
from rankslice.exploration.results.front import Archive
from rankslice.exploration.search.nsga2 import nsga2
from rankslice.exploration.search.search_options import GeneticOptions
from rankslice.exploration.search.seeds import balanced_seeds, planned_seeds
from rankslice.exploration.search.space import Search, scorer, space_of
from rankslice.exploration.times.span_times import kind_times
from rankslice.framework.profile import Profile, ProfiledKind, profile_to_json
from rankslice.framework.specs.keys import parse_key
from rankslice.framework.specs.read_platform import read_platform
from rankslice.frontend.formats import read_model
from rankslice.networks.zoo import zoo_model
from rankslice.session.building.planning import read_profile
from rankslice.session.exploring.simulate import simulate
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.profiling.profiler import Profiler, profile_model
from rankslice.session.profiling.span_bench import Listener

MEASURED = ("local_cpu0", "local_cpu0-1")
"""One core, and both."""
BOARDS = 8
MEMORY_MB = 8192
IDLE_W = 5.0
"""Power of a board that waits: the paper does not tell it."""
FRAMES = 300
SPEEDS = ("paper", "here")
Assignment = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Resource:
    """What a board offers, and from which measured times its own come."""

    name: str
    measured: str
    paper: int
    """Row of the paper's Table II that tells its speed and power."""
    power_share: float
    """Of what that row's accelerator draws above idle."""


RESOURCES = (
    Resource("cpu0-1", MEASURED[1], 0, 1.0),
    Resource("gpu", MEASURED[1], 1, 1.0),
    Resource("cpu0", MEASURED[0], 0, 0.5),
)
"""All cores first: the exact planner takes the first of those that share cores."""


def model_of(network: str, folder: Path) -> Path:
    """Return the file of a network; one that is made anew is kept in the folder."""
    file = folder / f"{network}.onnx"
    if network not in OTHERS:
        return zoo_model(network)
    return file if file.exists() else OTHERS[network](file)


class OutOfTimeError(Exception):
    """The time for measuring is over."""


class Clock(Listener):
    """Ends measuring after a time."""

    def __init__(self, seconds: float) -> None:
        self._deadline_s = time.monotonic() + seconds

    def measured(self, key: str) -> None:
        """Raise once the time is over."""
        if time.monotonic() > self._deadline_s:
            raise OutOfTimeError(key)


def measure_profile(network: str, folder: Path, seconds: float, *, again: bool) -> None:
    """Profile a network on one core and on two, as far as time allows.

    What an earlier call measured is kept; ``again``, it is measured once more.
    """
    file = folder / f"{network}.profile.json"
    try:
        with Profiler(
            model_of(network, folder),
            "local",
            file,
            ProfileOptions(accelerators=MEASURED, alone=True, again=again),
            listener=Clock(seconds),
        ) as profiler:
            profile_model(profiler, refined=False)
    except OutOfTimeError as stopped:
        console.print(f"{stopped} has spans that were not measured yet: take this step again")


def boards_profile(measured: Profile, paper: Sequence[Point], speed: str) -> Profile:
    """Return what the network takes on the boards: measured times, scaled.

    Args:
        measured: of the network, on one core and on two.
        paper: the network's rows of Table II.
        speed: ``paper`` or ``here``.
    """
    both = _kind(measured, MEASURED[1])
    paper_slower = 1 / (paper[0].fps * _whole_s(both, measured)) if speed == "paper" else 1.0
    kinds = tuple(
        _scaled(
            _kind(measured, resource.measured),
            resource.name,
            paper_slower * paper[0].fps / paper[resource.paper].fps,
        )
        for resource in RESOURCES
    )
    return replace(measured, kinds=kinds)


def _kind(profile: Profile, key: str) -> ProfiledKind:
    kind = profile.kind_of(key)
    if kind is None:
        raise SystemExit(f"{key} was not measured: take the step profile")
    return kind


def _whole_s(kind: ProfiledKind, profile: Profile) -> float:
    """Return what the whole network takes by the cost model, in seconds."""
    layers = len(profile.model.layers)
    return kind_times(kind, layers).span_s(0, layers - 1)


def _scaled(kind: ProfiledKind, resource: str, factor: float) -> ProfiledKind:
    keys = tuple(f"{board}_{resource}" for board in _board_names())
    spans = tuple(
        replace(span, samples_ns=tuple(max(1, round(factor * ns)) for ns in span.samples_ns))
        for span in kind.spans
    )
    accelerator = parse_key(keys[0], keys[0]).kind
    return replace(kind, key=keys[0], keys=keys, accelerator=accelerator, spans=spans)


def _board_names() -> list[str]:
    return [f"edge{number:02}" for number in range(1, BOARDS + 1)]


def write_platform(file: Path) -> Path:
    """Write the platform file of the boards."""
    board = {
        "cores": "0-1",
        "memory_mb": MEMORY_MB,
        "idle_w": IDLE_W,
        "gpu": {"engine": "onnxruntime"},
    }
    link = {"bandwidth_mbps": 1000, "latency_ms": 0.2}
    described = {"boards": dict.fromkeys(_board_names(), board), "links": {"default": link}}
    file.write_text(json.dumps(described, indent=1) + "\n")
    return file


@dataclass(frozen=True, slots=True)
class Case:
    """A network on the boards, ready to be searched and simulated."""

    network: str
    model: Path
    platform: Path
    profile: Path
    problem: Problem

    def point(self, name: str, assignment: Assignment) -> Point:
        """Return what an assignment costs, by the cost model."""
        costs = evaluate(self.problem, assignment[np.newaxis], latency=False)
        used = [self.problem.devices[device] for device in np.unique(assignment)]
        return Point(
            name,
            energy_j=float(costs.energy_j[0]),
            fps=1 / float(costs.bottleneck_s[0]),
            memory_mb=float(costs.memory_bytes[0]) / 1e6,
            boards=len({device.board for device in used}),
            cores=sum(len(device.cores) for device in used),
            gpus=sum(not device.cores for device in used),
        )

    def confirmed(self, name: str, assignment: Assignment) -> Point:
        """Return the same with its rate by simulation and without overlap, and its limit."""
        prediction = predict(self.problem, assignment)
        return replace(
            self.point(name, assignment),
            simulated_fps=self._simulated_fps(assignment),
            blocking_fps=blocking_fps(prediction),
            bottleneck=prediction.bottleneck,
        )

    def _simulated_fps(self, assignment: Assignment) -> float:
        with TemporaryDirectory(prefix="rankslice-") as name:
            mapping = Path(name) / "mapping.json"
            mapping.write_text(json.dumps(mapping_of(self.problem, assignment.tolist())))
            return simulate(
                self.model,
                mapping=mapping,
                platform=str(self.platform),
                profile=self.profile,
                options=RunOptions(frames=FRAMES),
            ).simulation.throughput_fps

    def everything_on(self, resource: str) -> Assignment:
        """Return the assignment of the whole network to one resource of the first board."""
        keys = [device.key for device in self.problem.devices]
        device = keys.index(f"{_board_names()[0]}_{resource}")
        return np.full(len(self.problem.layers), device, np.int64)


def prepare(network: str, folder: Path, speed: str) -> Case:
    """Return a network on the boards; the files that describe them are written."""
    paper = TABLE_2[network]
    measured = read_profile(folder / f"{network}.profile.json")
    profile = boards_profile(measured, paper, speed)
    file = folder / f"{network}.{speed}.boards.json"
    file.write_text(profile_to_json(profile))
    platform = write_platform(folder / "boards.yaml")
    model = model_of(network, folder)
    problem = profiled_problem(
        profile,
        read_model(model).graph,
        read_platform(platform),
        keys=[f"{board}_{resource.name}" for board in _board_names() for resource in RESOURCES],
        source=file.name,
    )
    problem = replace(problem, measured_w=active_w(paper))
    return Case(network, model, platform, file, problem)


def active_w(paper: Sequence[Point]) -> NDArray[np.float64]:
    """Return what each resource draws above idle while it computes, in watts.

    In the paper a board takes so many joules a frame, and runs so many frames a second.
    """
    return np.array(
        [
            resource.power_share
            * (paper[resource.paper].energy_j * paper[resource.paper].fps - IDLE_W)
            for resource in RESOURCES
        ]
    )


def blocking_fps(prediction: Prediction) -> float:
    """Return the rate if no rank computed while it sends to another board or receives.

    So do the programs that the paper generates: they wait for a message, compute, and send.
    """
    busy_s = {device.key: device.busy_s for device in prediction.devices}
    for channel in prediction.channels:
        ends = (channel.origin, channel.target)
        if len({key.rpartition("_")[0] for key in ends}) > 1:
            for key in ends:
                busy_s[key] += channel.seconds
    return 1 / max(busy_s.values())


def best_of(problem: Problem, genetics: GeneticOptions, searches: int) -> Archive:
    """Return the best that several searches find, which differ in their seeds alone."""
    seeds = np.concatenate([planned_seeds(problem), balanced_seeds(problem)])
    score, space = scorer(problem, OBJECTIVES), space_of(problem, OBJECTIVES)
    rows = []
    for seed in range(searches):
        searched = nsga2(Search(score, space), replace(genetics, seed=seed), seeds)
        best = [searched.best(b, n) for b in searched.groups for n in range(len(OBJECTIVES))]
        rows += [*searched.assignments, *(row for row in best if row is not None)]
    assignments = np.unique(rows, axis=0)
    archive = Archive(space.layers, space.objectives)
    archive.add(assignments, score(assignments))
    return archive


def search(network: str, folder: Path, speed: str, genetics: GeneticOptions, searches: int) -> None:
    """Search for mappings of a network; keep the front, and what is shown of it."""
    case = prepare(network, folder, speed)
    begin = time.perf_counter()
    archive = best_of(case.problem, genetics, searches)
    seconds = time.perf_counter() - begin
    console.print(f"{network}, {speed}: {len(archive.values)} on the front, {seconds:.0f} s")
    record = Solution(
        seconds=seconds,
        one_board=tuple(
            case.confirmed(paper.name, case.everything_on(resource.name))
            for paper, resource in zip(TABLE_2[network][:2], RESOURCES[:2], strict=True)
        ),
        selected=tuple(selected(case, archive)),
        boards=tuple(best_on(case, archive, boards) for boards in archive.groups),
        front=tuple(case.point("", row) for row in archive.assignments),
    )
    found_file(network, folder, speed).write_text(json.dumps(asdict(record), indent=1) + "\n")


def found_file(network: str, folder: Path, speed: str) -> Path:
    return folder / f"{network}.{speed}.found.json"


def selected(case: Case, archive: Archive) -> Iterator[Point]:
    """Yield the best mappings on as many boards as the paper's points, each in its respect."""
    for paper in TABLE_2[case.network][2:]:
        best = archive.best(paper.boards, OBJECTIVES.index(ENDS[paper.name]))
        if best is not None:
            yield case.confirmed(paper.name, best)


def best_on(case: Case, archive: Archive, boards: int) -> dict[str, Point]:
    """Return the mapping with the best value of each objective, of those on so many boards."""
    best = {name: archive.best(boards, number) for number, name in enumerate(OBJECTIVES)}
    return {
        name: (case.confirmed if name == "throughput" else case.point)(name, row)
        for name, row in best.items()
        if row is not None
    }


def read_found(file: Path) -> Solution:
    """Return what a search has kept."""
    record = json.loads(file.read_text())
    many = ("one_board", "selected", "front")
    points = {name: tuple(Point(**point) for point in record[name]) for name in many}
    boards = tuple(
        {name: Point(**point) for name, point in best.items()} for best in record["boards"]
    )
    return Solution(seconds=record["seconds"], boards=boards, **points)


def report(folder: Path, plots: Path | None) -> None:
    """Print tables in Markdown, and draw the figures, of what was searched."""
    solutions = {
        speed: {
            network: read_found(found_file(network, folder, speed))
            for network in TABLE_2
            if found_file(network, folder, speed).exists()
        }
        for speed in SPEEDS
    }
    for speed, networks in solutions.items():
        if networks:
            print(f"\nSpeed: {speed}\n")
            print(markdown(POINT_COLUMNS, point_rows(networks)))
            print(markdown(BOARD_COLUMNS, board_rows(networks)))
    if plots is not None:
        draw_fronts(solutions["paper"], [plots / "autodice-fronts.svg"])
        draw_boards(solutions["paper"], solutions["here"], [plots / "autodice-boards.svg"])


POINT_COLUMNS = (
    "network",
    "point",
    "J per frame",
    "paper",
    "frames/s",
    "simulated",
    "without overlap",
    "paper",
    "MB",
    "paper",
    "boards, cores, GPUs",
    "paper",
)


def point_rows(networks: Mapping[str, Solution]) -> Iterator[Sequence[str]]:
    """Yield Table II: each of our points with the paper's beside it."""
    for network, solution in networks.items():
        papers = {point.name: point for point in TABLE_2[network]}
        for point in (*solution.one_board, *solution.selected):
            paper = papers[point.name]
            yield (
                TITLES[network],
                point.name,
                f"{point.energy_j:.3f}",
                f"{paper.energy_j:.3f}",
                f"{point.fps:.1f}",
                f"{point.simulated_fps:.1f}",
                f"{point.blocking_fps:.1f}",
                f"{paper.fps:.1f}",
                f"{point.memory_mb:.0f}",
                f"{paper.memory_mb:.0f}",
                *(f"{of.boards}, {of.cores}, {of.gpus}" for of in (point, paper)),
            )


BOARD_COLUMNS = (
    "network",
    "boards",
    "highest rate, frames/s",
    "simulated",
    "limit",
    "without overlap",
    "of one board's",
    "least energy, J",
    "of one board's",
    "least memory, MB",
    "of one board's",
)


def board_rows(networks: Mapping[str, Solution]) -> Iterator[Sequence[str]]:
    """Yield Figure 5: the best of each number of boards, and as a multiple of one board's."""
    for network, solution in networks.items():
        one = solution.boards[0]
        for best in solution.boards:
            fastest, energy, memory = (best[name] for name in OBJECTIVES)
            yield (
                TITLES[network],
                str(fastest.boards),
                f"{fastest.fps:.1f}",
                f"{fastest.simulated_fps:.1f}",
                fastest.bottleneck,
                f"{fastest.blocking_fps:.1f}",
                f"{fastest.fps / one['throughput'].fps:.2f}",
                f"{energy.energy_j:.3f}",
                f"{energy.energy_j / one['energy'].energy_j:.2f}",
                f"{memory.memory_mb:.0f}",
                f"{memory.memory_mb / one['memory'].memory_mb:.2f}",
            )


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Take the command line, do a step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("step", choices=("profile", "search", "report"))
    add("network", nargs="?", choices=tuple(TABLE_2), default=next(iter(TABLE_2)))
    add("--folder", type=Path, default=Path("autodice"), help="what was found, kept")
    add("--speed", choices=SPEEDS, default=SPEEDS[0], help="of the boards, with search")
    add("--seconds", type=float, default=200, help="after which profile stops measuring")
    add("--again", action="store_true", help="let profile measure once more what is known")
    add("--population", type=int, default=100)
    add("--generations", type=int, default=400)
    add("--searches", type=int, default=12, help="of which the best counts")
    add("--plots", type=Path, help="folder to draw into, with report")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.step == "report":
        report(args.folder, args.plots)
        return
    console.print(machine())
    if args.step == "profile":
        measure_profile(args.network, args.folder, args.seconds, again=args.again)
    else:
        genetics = GeneticOptions(args.population, generations=args.generations)
        search(args.network, args.folder, args.speed, genetics, args.searches)


if __name__ == "__main__":
    main()
