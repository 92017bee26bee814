"""What ranks that take turns reach of the rate that they could have.

Null stages: a source's stage of 20 ms, then replicas that take longer; the reference is the rate
of the slowest stage, its time divided among its replicas. On this machine alone the simulator's
prediction stands beside the measurement. With ``--boards`` each rank has a virtual board.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
from across_boards import Boards, Job, boards_if, build_for, keys_of
from null_jobs import parts_model
from timing import console, in_turns, machine, print_table, spread

from rankslice.backend.runtime.options import RunOptions
from rankslice.session.exploring.simulate import simulate

SKIP = """
<ir_version: 8, opset_import: ["" : 17]>
skip (float[1,8] x) => (float[1,8] y) {
  a = Relu (x)
  b = Relu (a)
  y = Add (a, b)
}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A chain of stages, each of one rank or of several in turn."""

    name: str
    stages_ms: tuple[tuple[float, ...], ...]
    """By stage, what each of its ranks takes for a frame."""
    weights: tuple[tuple[int, ...], ...] = ()
    """By stage; all 1 by default."""
    skips: bool = False
    """Whether a tensor of the first stage skips the second."""
    target: float = 0.95

    @property
    def reference_fps(self) -> float:
        """The rate of the slowest stage, if all of its ranks work all the time."""
        return min(sum(1e3 / ms for ms in stage) for stage in self.stages_ms)


CASES = (
    Case("20 ms, then 2 x 40 ms", ((20.0,), (40.0, 40.0))),
    Case("8 x 160 ms", ((20.0,), (160.0,) * 8)),
    Case("30 and 60 ms", ((5.0,), (30.0, 60.0)), ((1,), (2, 1)), target=0.93),
    Case("20, 2 x 40, 20 ms, chain", ((20.0,), (40.0, 40.0), (20.0,))),
    Case("20, 2 x 40, 20 ms, skip", ((20.0,), (40.0, 40.0), (20.0,)), skips=True),
)


def write_model(place: Path, case: Case) -> list[list[str]]:
    """Write the model of a case; return the layers of each stage."""
    if case.skips:
        model = onnx.parser.parse_model(SKIP)
        for node, name in zip(model.graph.node, "abc", strict=True):
            node.name = name
        layers = [["a"], ["b"], ["c"]]
    else:
        model, layers = parts_model([4096] * (len(case.stages_ms) - 1))
    onnx.save(model, place / "model.onnx")
    return layers


def mapping_of(
    case: Case, layers: Sequence[Sequence[str]], keys: Sequence[str]
) -> dict[str, list[str]]:
    """Return a mapping of a case, one key after the other."""
    left = iter(keys)
    mapping = {}
    for number, (stage, names) in enumerate(zip(case.stages_ms, layers, strict=True)):
        weights = case.weights[number] if case.weights else (1,) * len(stage)
        parts = [f"{next(left)}*{weight}" for weight in weights]
        mapping["|".join(parts) if len(parts) > 1 else parts[0].partition("*")[0]] = list(names)
    return mapping


def build_case(place: Path, case: Case, boards: Boards | None) -> Job:
    """Build a case for this machine, or for boards."""
    place.mkdir()
    layers = write_model(place, case)
    sleeps_ms = [*itertools.chain(*case.stages_ms)]
    mapping = mapping_of(case, layers, keys_of(boards, len(sleeps_ms)))
    model = place / "model.onnx"
    job = build_for(boards, place, model, mapping, sleeps_ms=sleeps_ms, share_cores=True)
    job.deploy()
    return job


def report(
    jobs: Mapping[Case, Job], measured: Mapping[Case, Sequence[float]], frames: int, title: str
) -> None:
    """Print the rates of all cases beside what they could be."""
    rows = []
    for case, rates in measured.items():
        share = spread(rate / case.reference_fps for rate in rates)
        rows.append(
            (
                case.name,
                f"{case.reference_fps:.1f}",
                spread(rates).text(1),
                share.text(3),
                compared(jobs[case], frames, rates),
                f"{case.target}",
                "met" if share.value >= case.target else "missed",
            )
        )
    columns = ("stages", "could be, frames/s", "frames/s", "share")
    print_table(title, (*columns, "predicted, ratio", "target", ""), rows)


def compared(job: Job, frames: int, rates: Sequence[float]) -> str:
    """Return the simulated rate of a job, and the measured one over it: ``47.9, 0.991``."""
    if job.boards is not None:
        return "-"
    options = RunOptions(frames=frames)
    predicted = simulate(job.folder, options=options).simulation.throughput_fps
    return f"{predicted:.1f}, {spread(rates).value / predicted:.3f}"


def rate(job: Job, frames: int) -> float:
    return job.run(frames).throughput_fps


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--boards", action="store_true", help="two virtual boards")
    add("--frames", type=int, default=400, help="of each run")
    add("--rounds", type=int, default=5, help="runs of each")
    args = parser.parse_args()
    console.print(machine())
    with (
        tempfile.TemporaryDirectory(prefix="rankslice-") as place,
        boards_if(2 * args.boards) as boards,
    ):
        jobs = {case: build_case(Path(place, f"{n}"), case, boards) for n, case in enumerate(CASES)}
        runs = {case: partial(rate, job, args.frames) for case, job in jobs.items()}
        title = "null stages" + " on boards" * args.boards
        report(jobs, in_turns(args.rounds, runs), args.frames, title)


if __name__ == "__main__":
    main()
