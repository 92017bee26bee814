"""How long the start takes: of the cheapest commands, and of a job until its first result.

The commands take turns, and stand beside Python that does nothing. The job is SqueezeNet over two
ranks. Each round measures, one after the other: mpirun of an empty mpi4py program on the job's
cores, to its end, once as it is and once without the network, as jobs on one machine run; both
ranks' engines loading their sub-models at once, where the slower one counts; and ``rankslice
run`` until the result of frame 0 is written. What mpirun and the engines do not explain is what
RankSlice adds. Beside wall-clock time stands processor time, which other programs on the machine
change less.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.backend.launch.mpirun import find_mpirun, launch_command
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.plan import Plan
from rankslice.networks.zoo import zoo_model
from rankslice.session.build_folder import RESULTS, read_plan
from rankslice.session.building.build import build

PROJECT = Path(__file__).parents[1]
MODEL = PROJECT / "models" / "digits.onnx"
MAPPING = PROJECT / "mappings" / "squeezenet-two-ranks.json"
PROGRAM = "from rankslice.commands import main; main()"
BARE = "python -c pass"
COMMANDS = {
    BARE: ["pass"],
    "rankslice --help": [PROGRAM, "--help"],
    "rankslice --version": [PROGRAM, "--version"],
    "rankslice run --help": [PROGRAM, "run", "--help"],
    f"rankslice inspect {MODEL.name}": [PROGRAM, "inspect", str(MODEL)],
}
LOAD = """
import os, sys, time
from pathlib import Path
folder, rank = Path(sys.argv[1]), int(sys.argv[2])
sys.path.insert(0, str(folder))
from runtime.engines import engine_settings, open_engine
import driver
job = driver.JOB
spec = job.ranks[rank]
os.sched_setaffinity(0, spec.cores)
print("ready", flush=True)
sys.stdin.readline()
begin = time.perf_counter()
for segment in job.segments_of(rank):
    sides = segment.inputs, segment.outputs
    tensors = [[job.tensors[name] for name in side] for side in sides]
    engine = open_engine(spec.engine, engine_settings(spec, exact=False))
    engine.load(folder / segment.file, *tensors)
print(time.perf_counter() - begin)
"""
"""Prints how long the engine of a rank takes to load its sub-models, in seconds."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if "BYTECODE" not in name}
"""Compiled modules are kept, as they usually are."""


@dataclass(frozen=True, slots=True)
class Start:
    """One round of a job's start; seconds."""

    empty: tuple[float, float]
    """Of mpirun of an empty program: by the clock, and of the processor."""
    offline: tuple[float, float]
    """The same without the network."""
    load: float
    first: float
    whole: tuple[float, float]


def start(command: Sequence[str], **variables: str) -> tuple[float, float]:
    """Return the seconds that a command takes: by the clock, and of the processor."""
    before, begin = _processor_s(), time.perf_counter()
    environment = {**ENVIRONMENT, **variables}
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
    return time.perf_counter() - begin, _processor_s() - before


def _processor_s() -> float:
    """Return the processor time of all programs that have ended here, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_commands(rounds: int) -> None:
    """Measure the commands and print what they take."""
    commands = {
        name: partial(start, [sys.executable, "-c", *arguments])
        for name, arguments in COMMANDS.items()
    }
    results = in_turns(rounds, commands)
    bare = [processor for _, processor in results[BARE]]
    rows = [
        (
            name,
            spread(wall for wall, _ in times).text(),
            spread(processor for _, processor in times).text(),
            ratios([processor for _, processor in times], bare).text(0),
        )
        for name, times in results.items()
    ]
    columns = ("command", "seconds", "of the processor", "times bare Python")
    print_table("Commands", columns, rows)


def job(folder: Path, plan: Plan) -> Start:
    """Return what one start of a build folder's job took."""
    mpirun, program = find_mpirun(), (sys.executable, "-c", "from mpi4py import MPI")
    command = launch_command(plan, folder, mpirun, program=program)
    local = "self,sm" if mpirun.version[0] >= 5 else "self,vader"
    # Elsewhere a killed mpirun may have left files that this one would stumble over.
    own = str(folder.parent)
    empty, offline = start(command, TMPDIR=own), start(command, TMPDIR=own, OMPI_MCA_btl=local)
    load = _load_s(folder, len(plan.ranks))
    begin = time.monotonic()
    whole = start([sys.executable, "-c", PROGRAM, "run", str(folder), "--frames", "1"])
    # The sink runs on this machine, so its clock is this one.
    first = float(read_results(folder / RESULTS).completed_s[0]) - begin
    return Start(empty, offline, load, first, whole)


def _load_s(folder: Path, ranks: int) -> float:
    """Return how long the slowest of all ranks' engines takes when they load at once."""
    loading = [
        subprocess.Popen(
            [sys.executable, "-c", LOAD, str(folder), str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for rank in range(ranks)
    ]
    for process in loading:
        assert process.stdout
        process.stdout.readline()
    for process in loading:  # all are ready to begin
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return max(float(process.communicate()[0]) for process in loading)


def measure_jobs(rounds: int) -> None:
    """Measure the start of a job and print what it takes; one round more comes first."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as place:
        folder = Path(place) / "out"
        build(zoo_model("squeezenet"), MAPPING, "local", folder)
        plan = read_plan(folder)
        starts = in_turns(rounds + 1, {"job": partial(job, folder, plan)})["job"][1:]

    def row(name: str, walls: Iterable[float], processor: Iterable[float] = ()) -> tuple[str, ...]:
        times = list(processor)
        return name, spread(walls).text(), spread(times).text() if times else ""

    def both(name: str, times: Sequence[tuple[float, float]]) -> tuple[str, ...]:
        return row(name, (wall for wall, _ in times), (cpu for _, cpu in times))

    rows = [
        both("mpirun of an empty mpi4py program", [start.empty for start in starts]),
        both("the same without the network", [start.offline for start in starts]),
        row("engines load", (start.load for start in starts)),
        row("rankslice run, to the first result", (start.first for start in starts)),
        row("beyond mpirun and engines", (e.first - e.empty[0] - e.load for e in starts)),
        row("beyond mpirun without the network", (e.first - e.offline[0] - e.load for e in starts)),
        both("rankslice run, to its end", [start.whole for start in starts]),
    ]
    title = "SqueezeNet over two ranks; aimed at: 0.5 s beyond mpirun and engines"
    print_table(title, ("", "seconds", "of the processor"), rows)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=("commands", "job"), help="measure only these")
    args = parser.parse_args()
    console.print(f"{machine()}\n{args.rounds} rounds")
    if args.only != "job":
        measure_commands(args.rounds)
    if args.only != "commands":
        measure_jobs(args.rounds)


if __name__ == "__main__":
    main()
