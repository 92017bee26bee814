"""What ranks that take turns reach of the rate that they could have.

Null stages: a source's stage of 20 ms, then replicas that take longer; the reference is the rate
of the slowest stage, its time divided among its replicas. On this machine alone the simulator's
prediction stands beside the measurement. With ``--boards`` each rank has a virtual board.
``--network`` measures a network on two cores in turn against two copies of it that know
nothing of each other, or against a mapping without turns, in alternate seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import onnx
from across_boards import RATE_MBIT, Boards, build_for, exit_without_boards
from null_jobs import let_sleep, parts_model
from pipeline_efficiency import (
    ENDLESS,
    Frames,
    model_of,
    pipeline,
    stages_alone,
)
from pipeline_efficiency import Case as Network
from timing import console, machine, print_table, ratios, spread, start_round
from turns import take_turns

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.build.build import BuildOptions, build
from rankslice.commands.run.run import PreparedRun, prepare, run
from rankslice.commands.simulate.simulate import SimulationOptions, Traffic, simulate
from rankslice.frontend.formats import read_model

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


def built_case(
    place: Path, case: Case, boards: Boards | None, frames: int
) -> Callable[[], PreparedRun]:
    """Build a case for this machine, or for boards; return what prepares a run of it."""
    place.mkdir()
    layers = write_model(place, case)
    sleeps = [*itertools.chain(*case.stages_ms)]
    if boards is not None:
        names = [board.name for board in boards]
        keys = [
            f"{names[n % len(names)]}_cpu0" + f".{n // len(names) + 1}" * (n >= len(names))
            for n in range(len(sleeps))
        ]
        mapping = mapping_of(case, layers, keys)
        job = build_for(
            boards, place, place / "model.onnx", mapping, sleeps_ms=sleeps, share_cores=True
        )
        job.deploy()
        return partial(job.prepared, frames)
    keys = local_keys(len(sleeps))
    folder = build_local(place, mapping_of(case, layers, keys), place / "model.onnx", sleeps)
    return partial(prepare, folder, RunOptions(frames=frames))


def local_keys(count: int) -> list[str]:
    """Return mapping keys that spread ranks over the cores of this machine."""
    cores = sorted(os.sched_getaffinity(0))
    numbers = (divmod(number, len(cores)) for number in range(count))
    return [f"local_cpu{cores[core]}" + f".{turn + 1}" * (turn > 0) for turn, core in numbers]


def build_local(
    place: Path, mapping: Mapping[str, Sequence[str]], model: Path, sleeps_ms: Sequence[float] = ()
) -> Path:
    """Build for this machine; return the folder."""
    (place / "mapping.json").write_text(json.dumps(mapping))
    built = build(
        model, place / "mapping.json", "local", place / "out", BuildOptions(share_cores=True)
    )
    if sleeps_ms:
        let_sleep(built.folder, built.plan, sleeps_ms)
    return built.folder


def measure_null_stages(place: Path, boards: Boards | None, frames: int, rounds: int) -> None:
    """Run all cases in turn, and print what they reach."""
    jobs = {c: built_case(place / f"{n}", c, boards, frames) for n, c in enumerate(CASES)}
    found: dict[Case, list[float]] = {case: [] for case in CASES}
    for number in range(rounds):
        start_round(number + 1, rounds, 0)
        for case, job in jobs.items():
            found[case].append(run(job()).summary.throughput_fps)
    rows = []
    for case, rates in found.items():
        shares = spread(rate / case.reference_fps for rate in rates)
        predicted = "-" if boards is not None else compared(jobs[case](), rates)
        verdict = "met" if shares.value >= case.target else "missed"
        rates_text = spread(rates).text(1)
        rows.append(
            [
                case.name,
                f"{case.reference_fps:.1f}",
                rates_text,
                shares.text(3),
                predicted,
                f"{case.target}",
                verdict,
            ]
        )
    columns = (
        "stages",
        "could be, frames/s",
        "frames/s",
        "share",
        "predicted, ratio",
        "target",
        "",
    )
    print_table("null stages" + " on boards" * (boards is not None), columns, rows)


def compared(job: PreparedRun, rates: Sequence[float]) -> str:
    """Return the simulated rate of a job, and the measured one over it: ``47.9, 0.991``."""
    traffic = Traffic(frames=job.options.frames)
    found = simulate(job.folder, options=SimulationOptions(traffic)).simulation.throughput_fps
    return f"{found:.1f}, {spread(rates).value / found:.3f}"


def measure_network(
    place: Path, name: str, cut: str | None, plain: Path | None, rounds: int, turn_s: float
) -> None:
    """Compare ranks in turn with copies that know nothing of each other, and with a plain pipeline.

    Args:
        place: a folder to build in.
        name: the network.
        cut: the layer with which the slice in turn begins, after one on the first core; ``None``:
            the whole network is in turn.
        plain: a mapping of two ranks to compare with; ``None``: two copies of the network.
        rounds: turns of each.
        turn_s: seconds of a turn.
    """
    model = model_of(name)
    layers = [layer.name for layer in read_model(model).graph.layers]
    first, second = local_keys(4)[:2]
    cores = f"{first}|{second}"
    mapping = {cores: [f"{layers[0]}..{layers[-1]}"]}
    if cut is not None:
        at = layers.index(cut)
        cores = f"{first}.2|{second}"
        mapping = {first: [f"{layers[0]}..{layers[at - 1]}"], cores: [f"{cut}..{layers[-1]}"]}
    (place / "in-turn.json").write_text(json.dumps(mapping))
    (place / "in-turn").mkdir()
    (place / "plain").mkdir()
    frames = Frames("stored", ENDLESS)
    case = Network(place / "in-turn", model, place / "in-turn.json", frames)
    with ExitStack() as running:
        begun = [pipeline("in turn", endless(case, place / "in-turn.bin"))]
        begun[0] = running.enter_context(begun[0])
        if plain is None:
            other = stages_alone("two copies", place, case.stages)
        else:
            sliced = Network(place / "plain", model, plain, frames)
            other = pipeline("plain mapping", endless(sliced, place / "plain.bin"))
        begun.append(running.enter_context(other))
        take_turns(begun, rounds, turn_s)
    rates, beside = begun[0].rates(), begun[1].rates()
    if plain is None:
        beside = [sum(parts) for parts in zip(*begun[1].rates_of_parts(), strict=True)]
    share = ratios(rates, beside)
    print_table(
        f"{name}, {'whole' if cut is None else f'from {cut} on'} on two cores in turn",
        ("", "frames/s"),
        [(begun[0].name, spread(rates).text(1)), (begun[1].name, spread(beside).text(1))],
    )
    console.print(f"in turn / {begun[1].name}: {share.text(3)}")


def endless(case: Network, results: Path) -> PreparedRun:
    """Return a run of a case that does not end by itself."""
    options = replace(case.pipelined.options, frames=ENDLESS, fps=None)
    return prepare(case.pipelined.folder, options, results=results)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--boards", action="store_true", help="two virtual boards for the null stages")
    add("--frames", type=int, default=400, help="of each run of null stages")
    add("--rounds", type=int, default=5, help="runs of each; turns of a network")
    add("--network", help="instead of null stages: resnet50, mobilenetv2.tflite, or a file")
    add("--cut", help="with --network: where the slice begins that is in turn; default: the whole")
    add("--plain", type=Path, help="with --network: a mapping instead of two copies")
    add("--turn", type=float, default=1.0, help="seconds of a turn of a network")
    given = parser.parse_args()
    if given.boards:
        exit_without_boards()
    console.print(machine())
    with ExitStack() as resources:
        place = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="rankslice-")))
        if given.network:
            measure_network(place, given.network, given.cut, given.plain, given.rounds, given.turn)
            return
        boards = resources.enter_context(Boards(2, RATE_MBIT)) if given.boards else None
        measure_null_stages(place, boards, given.frames, given.rounds)


if __name__ == "__main__":
    main()
