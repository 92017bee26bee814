"""How well the cost model and the simulator predict what mappings reach on this machine.

A network is profiled on one core while the other computes, too. Then twenty mappings run for
real, two ranks on a core each, and as many with three to six ranks that sleep for as long as
their slices would compute. Each is predicted before it runs: by the cost model, and by the
simulator with times that scatter as the profile's.

Steps can be taken one at a time; what each finds is kept in the folder, and gone on with:

    python benchmarks/prediction.py profile resnet50
    python benchmarks/prediction.py run resnet50
    python benchmarks/prediction.py sleep resnet50
    python benchmarks/prediction.py report
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring import console, machine, print_table
from null_jobs import let_sleep
from numpy.typing import NDArray
from pipeline_efficiency import store_frames

from rankslice.backend.runtime.options import RunOptions
from rankslice.exploration.cost_model import predict
from rankslice.exploration.problem import USUAL_OVERHEADS, Problem, mapping_of
from rankslice.exploration.profiled import profiled_problem
from rankslice.framework.commands.build import Build, build
from rankslice.framework.commands.run import prepare, run
from rankslice.framework.commands.simulate import Scatter, Traffic, simulate
from rankslice.framework.profile import profile_from_json
from rankslice.framework.specs.read_platform import read_platform
from rankslice.frontend.formats import read_model
from rankslice.measurement.keras_zoo import keras_model
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.zoo import zoo_model

NETWORKS = ("resnet50", "mobilenetv2", "densenet121")
CORES = ("local_cpu0", "local_cpu1")
MAPPINGS = 20
INTERLEAVED = 5
"""How many of them have a rank with two slices that do not follow each other."""
FRAMES_S = 2.5
"""How long a run should take, in seconds."""
LEAST_FRAMES = 60
TARGET_ERROR, TARGET_CORRELATION = 0.10, 0.9


def model_of(network: str) -> Path:
    """Return the file of a network."""
    return keras_model(network) if network == "mobilenetv2" else zoo_model(network)


def engine_of(model: Path) -> str:
    return "litert" if model.suffix == ".tflite" else "onnxruntime"


def problem_of(network: str, folder: Path, keys: Sequence[str]) -> Problem:
    """Return the problem of mapping a network that was profiled."""
    model, file = model_of(network), profile_file(network, folder)
    profile = profile_from_json(file.read_text(), file.name)
    problem = profiled_problem(
        profile,
        read_model(model).graph,
        read_platform("local"),
        keys=keys,
        default_engine=engine_of(model),
        source=file.name,
    )
    return replace(problem, overheads=USUAL_OVERHEADS)


def profile_file(network: str, folder: Path) -> Path:
    return folder / f"{network}.profile.json"


def measure_profile(network: str, folder: Path) -> None:
    """Profile a network on one core, while the other computes as well."""
    from rankslice.framework.commands.profile import Measuring, measure_model

    with Measuring(
        model_of(network), "local", profile_file(network, folder), keys=CORES
    ) as measuring:
        measure_model(measuring, refined=False)


def shares(problem: Problem) -> NDArray[np.float64]:
    """Return which share of the time has passed after each layer, (layers,)."""
    times = problem.times_s[0]
    total: NDArray[np.float64] = np.cumsum(times) / times.sum()
    return total


def assignment(problem: Problem, cuts: Sequence[float], places: Sequence[int]) -> list[int]:
    """Return places of slices that end where these shares of the time have passed."""
    passed = shares(problem)
    ends = [*(int(np.searchsorted(passed, cut)) + 1 for cut in cuts), len(passed)]
    found: list[int] = []
    for end, place in zip(ends, places, strict=True):
        found += [place] * (end - len(found))
    return found


def two_ranks(problem: Problem) -> Iterator[list[int]]:
    """Yield the mappings of two ranks: cut once, from one end to the other, and interleaved."""
    for cut in np.linspace(0.12, 0.88, MAPPINGS - INTERLEAVED):
        yield assignment(problem, [cut], [0, 1])
    for start in np.linspace(0.1, 0.4, INTERLEAVED):
        yield assignment(problem, [start, start + 0.4], [0, 1, 0])


def more_ranks(problem: Problem, random: np.random.Generator) -> Iterator[list[int]]:
    """Yield mappings of three to six ranks, a slice each, cut at random."""
    for number in range(MAPPINGS):
        ranks = 3 + number % 4
        cuts = np.sort(random.uniform(0.05, 0.95, ranks - 1))
        if min(np.diff([0, *cuts, 1])) < 0.03:
            cuts = np.arange(1, ranks) / ranks
        chosen = assignment(problem, cuts, range(ranks))
        yield chosen


def built(network: str, problem: Problem, chosen: Sequence[int], place: Path) -> Build:
    """Build a mapping in a folder that exists."""
    mapping = place / "mapping.json"
    mapping.write_text(json.dumps(mapping_of(problem, chosen)))
    return build(model_of(network), mapping, "local", place / "out", share_cores=True)


def reached(done: Build, place: Path, expected_fps: float) -> RunSummary:
    """Run a build with stored frames for about as long as all others; return what it showed."""
    source = str(store_frames(done.plan, place / "frames.npz"))
    frames = max(LEAST_FRAMES, int(FRAMES_S * expected_fps))
    return run(prepare(done.folder, RunOptions(inputs=(source,), frames=frames))).summary


def run_mappings(network: str, folder: Path, rounds: int, deadline_s: float) -> None:
    """Run the mappings of two ranks that were not run yet, as far as time allows."""
    problem = problem_of(network, folder, CORES)
    for number, chosen in enumerate(two_ranks(problem)):
        record = folder / f"{network}.run-{number:02}.json"
        if len(rounds_of(record)) >= rounds or time.monotonic() > deadline_s:
            continue
        predicted = predict(problem, chosen)
        with tempfile.TemporaryDirectory(prefix="rankslice-") as name:
            place = Path(name)
            done = built(network, problem, chosen, place)
            simulated = simulate(
                done.folder,
                profile=profile_file(network, folder),
                traffic=Traffic(frames=1000),
                scatter=Scatter(measured=True),
            )
            summary = reached(done, place, predicted.throughput_fps)
        keep(
            record,
            network=network,
            part="run",
            ranks=len(done.plan.ranks),
            segments=len(done.plan.segments),
            predicted_fps=predicted.throughput_fps,
            simulated_fps=simulated.simulation.throughput_fps,
            measured_fps=summary.throughput_fps,
            predicted_ms=[1e3 * place.compute_s for place in predicted.places],
            measured_ms=[rank.compute_ms["mean"] for rank in summary.ranks],
            simulated_p50_ms=simulated.simulation.latency_ms["p50"],
            measured_p50_ms=summary.latency_ms["p50"],
        )


def run_sleeping(network: str, folder: Path, deadline_s: float) -> None:
    """Run mappings of more ranks that sleep, as far as time allows."""
    keys = [f"{CORES[n % 2]}" + (f".{n // 2 + 1}" if n > 1 else "") for n in range(6)]
    problem = problem_of(network, folder, CORES)
    # Ranks that sleep do not get into each other's way, whatever cores they share.
    places = tuple(replace(problem.places[n % 2], key=key, cores=()) for n, key in enumerate(keys))
    problem = replace(problem, places=places)
    for number, chosen in enumerate(more_ranks(problem, np.random.default_rng(1))):
        record = folder / f"{network}.sleep-{number:02}.json"
        if record.exists() or time.monotonic() > deadline_s:
            continue
        predicted = predict(problem, chosen)
        with tempfile.TemporaryDirectory(prefix="rankslice-") as name:
            place = Path(name)
            done = built(network, problem, chosen, place)
            sleeps = [1e3 * each.compute_s for each in predicted.places]
            let_sleep(done.folder, done.plan, sleeps)
            summary = reached(done, place, predicted.throughput_fps)
        keep(
            record,
            network=network,
            part="sleep",
            ranks=len(done.plan.ranks),
            segments=len(done.plan.segments),
            predicted_fps=predicted.throughput_fps,
            simulated_fps=None,
            measured_fps=summary.throughput_fps,
            predicted_ms=sleeps,
            measured_ms=[rank.compute_ms["mean"] for rank in summary.ranks],
        )


def rounds_of(record: Path) -> list[float]:
    """Return the rates that a mapping reached so far."""
    found: list[float] = json.loads(record.read_text())["rounds_fps"] if record.exists() else []
    return found


def keep(record: Path, **figures: Any) -> None:
    """Write what a mapping showed; its rate is the median of all rounds."""
    rounds = [*rounds_of(record), figures["measured_fps"]]
    figures |= {"rounds_fps": rounds, "measured_fps": float(np.median(rounds))}
    record.write_text(json.dumps(figures, indent=1) + "\n")
    console.print(
        f"{record.stem}: {figures['predicted_fps']:.2f} frames/s predicted,"
        f" {figures['measured_fps']:.2f} measured",
        style="dim",
    )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's correlation of two lists without ties."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def errors(records: Sequence[dict[str, Any]], name: str) -> NDArray[np.float64]:
    """Return by which share of the measured rate each prediction is off."""
    measured = np.array([record["measured_fps"] for record in records])
    found: NDArray[np.float64] = np.array([record[name] for record in records]) / measured - 1
    return found


def report(folder: Path, picture: Path | None) -> None:
    """Print what was found, and draw it."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*-[0-9][0-9].json"))]
    groups = {(r["network"], r["part"]) for r in found}
    rows = []
    for network, part in sorted(groups):
        records = [r for r in found if (r["network"], r["part"]) == (network, part)]
        off = errors(records, "predicted_fps")
        simulated = "-"
        if records[0]["simulated_fps"] is not None:
            simulated = f"{100 * np.abs(errors(records, 'simulated_fps')).mean():.1f} %"
        measured = [r["measured_fps"] for r in records]
        rows.append(
            (
                f"{network}, {'two ranks' if part == 'run' else '3 to 6 sleeping ranks'}",
                str(len(records)),
                f"{min(measured):.1f}-{max(measured):.1f}",
                f"{100 * np.abs(off).mean():.1f} %",
                f"{100 * off.mean():+.1f} %",
                f"{100 * np.abs(off).max():.1f} %",
                simulated,
                f"{rank_correlation([r['predicted_fps'] for r in records], measured):.3f}",
            )
        )
    print_table(
        "Predicted against measured rates",
        (
            "mappings",
            "number",
            "frames/s",
            "mean error",
            "bias",
            "largest",
            "simulator's mean error",
            "rank correlation",
        ),
        rows,
    )
    console.print(
        f"aims: a mean error of at most {100 * TARGET_ERROR:.0f} %, a rank correlation of at least"
        f" {TARGET_CORRELATION}"
    )
    if picture is not None:
        picture.write_text(scatter_plot(found), encoding="utf-8")


_SIZE, _MARGIN = 460, 60
_COLOURS = {"resnet50": "#4269d0", "mobilenetv2": "#e2711d", "densenet121": "#3a9d5d"}


def scatter_plot(records: Sequence[dict[str, Any]]) -> str:
    """Return an SVG file: a point for each mapping, on axes by powers of ten."""
    values = [r[name] for r in records for name in ("predicted_fps", "measured_fps")]
    low, high = 0.8 * min(values), 1.25 * max(values)

    def along(value: float) -> float:
        return _SIZE * float(np.log(value / low) / np.log(high / low))

    marks = [v for v in (5, 10, 20, 50, 100, 200, 500, 1000) if low < v < high]
    right, bottom = _MARGIN + _SIZE, _MARGIN + _SIZE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + 190}" height="{bottom + 60}">',
        "<style>text{font:12px sans-serif;fill:#24292f}.grid{stroke:#e3e6ea}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_MARGIN}" y="30" font-weight="600">Frames/s, predicted and measured</text>',
    ]
    for mark in marks:
        x, y = _MARGIN + along(mark), bottom - along(mark)
        lines += [
            f'<path d="M{x:.1f} {_MARGIN}V{bottom}M{_MARGIN} {y:.1f}H{right}" class="grid"/>',
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{mark}</text>',
            f'<text x="{_MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{mark}</text>',
        ]
    lines += [
        f'<path d="M{_MARGIN} {bottom}L{right} {_MARGIN}" stroke="#6b7480"/>',
        f'<text x="{_MARGIN + _SIZE / 2}" y="{bottom + 40}" text-anchor="middle">predicted</text>',
        f'<text transform="translate(18 {_MARGIN + _SIZE / 2}) rotate(-90)"'
        ' text-anchor="middle">measured</text>',
    ]
    for record in records:
        x, y = _MARGIN + along(record["predicted_fps"]), bottom - along(record["measured_fps"])
        colour = _COLOURS[record["network"]]
        fill = colour if record["part"] == "run" else "none"
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"/>')
    for number, (network, colour) in enumerate(_COLOURS.items()):
        y = _MARGIN + 14 + 22 * number
        lines += [
            f'<circle cx="{right + 24}" cy="{y}" r="5" fill="{colour}"/>',
            f'<text x="{right + 36}" y="{y + 4}">{network}</text>',
        ]
    y = _MARGIN + 14 + 22 * len(_COLOURS)
    lines += [
        f'<circle cx="{right + 24}" cy="{y}" r="5" fill="none" stroke="#24292f"/>',
        f'<text x="{right + 36}" y="{y + 4}">3 to 6 ranks that sleep</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Take the command line, do a step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("step", choices=("profile", "run", "sleep", "report"))
    add("network", nargs="?", choices=NETWORKS, default=NETWORKS[0])
    add("--folder", type=Path, default=Path("prediction"), help="what was found, kept")
    add("--rounds", type=int, default=2, help="how often to run each mapping; the median counts")
    add("--seconds", type=float, default=200, help="after which no further run begins")
    add("--picture", type=Path, help="an .svg file to draw, with report")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + given.seconds
    console.print(machine())
    if given.step == "profile":
        measure_profile(given.network, given.folder)
    elif given.step == "run":
        run_mappings(given.network, given.folder, given.rounds, deadline_s)
    elif given.step == "sleep":
        run_sleeping(given.network, given.folder, deadline_s)
    else:
        report(given.folder, given.picture)


if __name__ == "__main__":
    main()
