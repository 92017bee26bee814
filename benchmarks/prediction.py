"""How well the cost model and the simulator predict what mappings reach on this machine.

A network is profiled on one core while the other computes, too. Then twenty mappings run for
real, two ranks on a core each, and as many with three to six ranks that sleep for as long as
their slices would compute. Each is predicted before it runs: by the cost model, and by the
simulator with times that scatter as the profile's.

Across virtual boards twenty more mappings run, of two to six ranks that sleep on two to four
boards, and twenty of two ranks that compute on two boards. The cables carry as many bytes as those
of the platform file that the prediction is told of.

Steps can be taken one at a time; what each finds is kept in the folder, and gone on with. Mappings
that were run as often as is asked for are only predicted anew:

    python benchmarks/prediction.py profile resnet50
    python benchmarks/prediction.py run resnet50
    python benchmarks/prediction.py sleep resnet50
    python benchmarks/prediction.py boards resnet50
    python benchmarks/prediction.py over-boards resnet50
    python benchmarks/prediction.py report

Where the machine's speed changes, take the first two steps in turn, several times, with a round
more each time (--rounds): profile and runs then tell of the same minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from across_boards import ON_THE_WIRE, RATE_MBIT, Boards, Job, exit_without_boards
from null_jobs import let_sleep
from numpy.typing import NDArray
from pipeline_efficiency import store_frames
from prediction_report import (
    NETWORKS,
    PARTS,
    Record,
    keep,
    known,
    report,
    round_of,
    with_prediction,
)
from timing import console, machine

from rankslice.backend.runtime.options import RunOptions
from rankslice.exploration.cost.prediction import predict
from rankslice.exploration.problem.devices import kinds_and_devices
from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import Problem, mapping_of
from rankslice.exploration.problem.runtime_costs import DEFAULT_OVERHEADS, SLEEPING_OVERHEADS
from rankslice.exploration.times.span_times import MeasuredTimes, kind_times
from rankslice.framework.profile import profile_from_json
from rankslice.framework.specs.read_platform import read_platform
from rankslice.frontend.formats import read_model
from rankslice.measurement.summary import RunSummary
from rankslice.networks.keras_zoo import keras_model
from rankslice.networks.zoo import zoo_model
from rankslice.session.arriving_frames import Variation
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.exploring.simulate import simulate
from rankslice.session.run import prepare, run
from rankslice.session.shared_options import Launching

CORES = ("local_cpu0", "local_cpu1")
MAPPINGS = 20
INTERLEAVED = 5
"""How many of them have a rank with two slices that do not follow each other."""
FRAMES_S = 2.5
"""How long a run should take, in seconds."""
MIN_FRAMES = 60
MAX_BOARDS = 4
DISK_MB = 1500
"""Of each virtual board: the packages of all mappings lie there."""


def model_of(network: str) -> Path:
    """Return the file of a network."""
    return keras_model(network) if network == "mobilenetv2" else zoo_model(network)


def engine_of(model: Path) -> str:
    return "litert" if model.suffix == ".tflite" else "onnxruntime"


def problem_of(network: str, folder: Path, platform: str, keys: Sequence[str]) -> Problem:
    """Return the problem of mapping a network that was profiled, on cores of that kind."""
    model, file = model_of(network), profile_file(network, folder)
    profile = profile_from_json(file.read_text(), file.name)
    boards = read_platform(platform)
    # Cores are described one by one.
    accelerators = kinds_and_devices(keys, boards, default_engine=engine_of(model))
    core = profile.kind_of(CORES[0])
    assert core is not None
    times = MeasuredTimes([kind_times(core, len(profile.model.layers))] * len(accelerators[0]))
    return make_problem(
        read_model(model).graph,
        boards,
        times.times_s,
        accelerators=accelerators,
        spans_s=times.spans_s,
        overheads=DEFAULT_OVERHEADS,
        times_source=file.name,
    )


def profile_file(network: str, folder: Path) -> Path:
    return folder / f"{network}.profile.json"


def measure_profile(network: str, folder: Path) -> None:
    """Profile a network on one core, while the other computes as well.

    What an earlier call measured is kept: each span has moments of all calls.
    """
    from rankslice.session.profiling.profile_options import ProfileOptions
    from rankslice.session.profiling.profiler import Profiler, profile_model

    file = profile_file(network, folder)
    with Profiler(
        model_of(network), "local", file, ProfileOptions(accelerators=CORES, again=True)
    ) as profiler:
        profile_model(profiler, refined=False)


def shares(problem: Problem) -> NDArray[np.float64]:
    """Return which share of the time has passed after each layer, (layers,)."""
    times = problem.times_s[0]
    total: NDArray[np.float64] = np.cumsum(times) / times.sum()
    return total


def assignment(problem: Problem, cuts: Sequence[float], devices: Sequence[int]) -> list[int]:
    """Return devices of slices that end where these shares of the time have passed."""
    passed = shares(problem)
    ends = [*(int(np.searchsorted(passed, cut)) + 1 for cut in cuts), len(passed)]
    chosen: list[int] = []
    for end, device in zip(ends, devices, strict=True):
        chosen += [device] * (end - len(chosen))
    return chosen


def two_ranks(problem: Problem) -> Iterator[list[int]]:
    """Yield the mappings of two ranks: cut once, from one end to the other, and interleaved.

    Where a large layer takes the place of several cuts, the later ones come one layer later each.
    """
    known: list[list[int]] = []
    cuts = [([cut], [0, 1]) for cut in np.linspace(0.12, 0.88, MAPPINGS - INTERLEAVED)]
    cuts += [([at, at + 0.4], [0, 1, 0]) for at in np.linspace(0.1, 0.4, INTERLEAVED)]
    for shares, devices in cuts:
        chosen = assignment(problem, shares, devices)
        while chosen in known:
            chosen = [chosen[0], *chosen[:-1]]
        known.append(chosen)
        yield chosen


def more_ranks(problem: Problem, least: int) -> Iterator[list[int]]:
    """Yield mappings of up to six ranks, ``least`` or more, a slice each, cut at random."""
    random = np.random.default_rng(1)
    for number in range(MAPPINGS):
        ranks = least + number % (7 - least)
        cuts = np.sort(random.uniform(0.05, 0.95, ranks - 1))
        if min(np.diff([0, *cuts, 1])) < 0.03:
            cuts = np.arange(1, ranks) / ranks
        yield assignment(problem, cuts, range(ranks))


@dataclass(frozen=True, slots=True)
class Part:
    """A network's mappings of one part, and where they run."""

    network: str
    name: str
    """One of :data:`prediction_report.PARTS`."""
    folder: Path
    platform: str
    """``local``, or a file."""
    keys: tuple[str, ...]
    sleeps: bool
    boards: Boards | None = None

    def problem(self) -> Problem:
        """Return the problem; ranks that sleep do not get into each other's way on any core."""
        problem = problem_of(self.network, self.folder, self.platform, self.keys)
        if not self.sleeps:
            return problem
        devices = tuple(replace(device, cores=()) for device in problem.devices)
        return replace(problem, devices=devices, overheads=SLEEPING_OVERHEADS)

    def mappings(self, problem: Problem) -> Iterator[list[int]]:
        """Yield the mappings to look at."""
        if not self.sleeps:
            return two_ranks(problem)
        return more_ranks(problem, 3 if self.boards is None else 2)

    def predicted(self, record: Record, problem: Problem) -> Record:
        """Return a record with what the cost model and the simulator predict."""
        predicted = predict(problem, record.assignment)
        fields = with_prediction(asdict(record) | {"rounds": record.rounds}, predicted)
        with tempfile.TemporaryDirectory(prefix="rankslice-") as place:
            simulated = self._simulated_fps(Path(place), problem, record)
        return Record(**fields | {"simulated_fps": simulated})

    def _simulated_fps(self, place: Path, problem: Problem, record: Record) -> float | None:
        if self.sleeps:
            return None  # there is nothing to draw times from
        mapping = place / "mapping.json"
        mapping.write_text(json.dumps(mapping_of(problem, record.assignment)))
        return simulate(
            model_of(self.network),
            mapping=mapping,
            platform=self.platform,
            profile=self._profile_of_keys(place),
            options=RunOptions(frames=1000),
            variation=Variation(scatter=True),
        ).simulation.throughput_fps

    def _profile_of_keys(self, place: Path) -> Path:
        """Write the profile as one of the part's keys; return its file."""
        known = json.loads(profile_file(self.network, self.folder).read_text())
        known["kinds"][0] |= {"key": self.keys[0], "keys": [*self.keys]}
        file = place / "profile.json"
        file.write_text(json.dumps(known))
        return file

    def reached(self, record: Record, problem: Problem, place: Path) -> RunSummary:
        """Run a mapping with stored frames for about as long as all others."""
        mapping = place / "mapping.json"
        mapping.write_text(json.dumps(mapping_of(problem, record.assignment)))
        model = model_of(self.network)
        done = build(model, mapping, self.platform, place / "out", BuildOptions(share_cores=True))
        plan = done.plan
        if self.sleeps:
            plan = let_sleep(done.folder, plan, record.sleeps_ms)
        frames = max(MIN_FRAMES, int(FRAMES_S * record.predicted_fps))
        source = str(store_frames(plan, place / "frames.npz"))
        options = RunOptions(inputs=(source,), frames=frames)
        if self.boards is None:
            return run(prepare(done.folder, options)).summary
        Job(self.boards, done.folder, plan).deploy()
        ready = prepare(done.folder, options, Launching(ssh_config=self.boards.ssh_config))
        return run(ready).summary


def look_at(part: Part, rounds: int, deadline_s: float) -> None:
    """Predict a part's mappings, and run those that were not run so often, as time allows.

    Their order is another one in each round: where the machine's speed changes for minutes,
    mappings that always followed each other would have met the same changes.
    """
    problem = part.problem()
    mappings = list(part.mappings(problem))
    for number in np.random.default_rng(rounds).permutation(len(mappings)).tolist():
        chosen = mappings[number]
        record = known(part.folder, part.network, part.name, number)
        if record is None:
            record = Record(part.network, part.name, number, tuple(map(int, chosen)))
        if not (part.sleeps and record.rounds):
            record = part.predicted(record, problem)
        if part.sleeps and not record.rounds:
            record = replace(record, sleeps_ms=record.predicted_ms)
        if len(record.rounds) < rounds and time.monotonic() < deadline_s:
            with tempfile.TemporaryDirectory(prefix="rankslice-") as name:
                done = round_of(part.reached(record, problem, Path(name)))
            record = replace(record, rounds=(*record.rounds, done))
        keep(part.folder, record)


def local_part(network: str, name: str, folder: Path) -> Part:
    """Return mappings of this machine's cores."""
    if name == "run":
        return Part(network, name, folder, "local", CORES, sleeps=False)
    keys = tuple(f"{CORES[n % 2]}" + (f".{n // 2 + 1}" if n > 1 else "") for n in range(6))
    return Part(network, name, folder, "local", keys, sleeps=True)


def boards_part(network: str, name: str, folder: Path, boards: Boards) -> Part:
    """Return mappings of virtual boards: of their cores in turn, board by board."""
    cores = sorted(os.sched_getaffinity(0))
    hosts = {board.name: {"host": board.address, "cores": max(cores) + 1} for board in boards}
    link = {"bandwidth_mbps": RATE_MBIT / ON_THE_WIRE, "latency_ms": 0.1}
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps({"boards": hosts, "links": {"default": link}}))
    count = len(boards)
    if name == "over-boards":
        keys = tuple(f"{board.name}_cpu{cores[n]}" for n, board in enumerate(boards))
        return Part(network, name, folder, str(file), keys, sleeps=False, boards=boards)
    turns = [(n // count, boards[n % count]) for n in range(6)]
    keys = tuple(f"{board.name}_cpu{cores[turn]}" for turn, board in turns)
    return Part(network, name, folder, str(file), keys, sleeps=True, boards=boards)


def main() -> None:
    """Take the command line, do a step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("step", choices=("profile", *PARTS, "report"))
    add("network", nargs="?", choices=NETWORKS, default=NETWORKS[0])
    add("--folder", type=Path, default=Path("prediction"), help="what was found, kept")
    add("--rounds", type=int, default=2, help="how often to run each mapping; the median counts")
    add("--seconds", type=float, default=200, help="after which no further run begins")
    add("--picture", type=Path, help="a file to draw into, with report: .svg, .png")
    add("--residual", type=float, default=0.08, help="share by which a prediction is far off")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + args.seconds
    console.print(machine())
    if args.step == "profile":
        measure_profile(args.network, args.folder)
    elif args.step == "report":
        report(args.folder, args.picture, args.residual)
    elif args.step in ("run", "sleep"):
        look_at(local_part(args.network, args.step, args.folder), args.rounds, deadline_s)
    else:
        exit_without_boards()
        count = 2 if args.step == "over-boards" else MAX_BOARDS
        with ExitStack() as resources:
            boards = resources.enter_context(Boards(count, RATE_MBIT, disk_mb=DISK_MB))
            part = boards_part(args.network, args.step, args.folder, boards)
            look_at(part, args.rounds, deadline_s)


if __name__ == "__main__":
    main()
