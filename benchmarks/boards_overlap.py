"""Whether sending over a cable overlaps computing, on two boards, and against a loop by hand.

Two boards work for 20 ms a frame each; the tensor between them takes 18.9 ms on a cable of
1 Gbit/s. So the pipeline could reach one frame in 20 ms; without overlap a frame takes 39 ms.

Each round measures, one after the other: a raw mpi4py ping-pong of the tensor; a pipeline written
by hand (``bare_loop.py``) with the same sub-models, cores, cable and mpirun; the job. For
onnxruntime and LiteRT, 20 ms are what two rows of convolutions take on a core that has nothing
else to do; here the network stack uses the boards' cores, too, and both pipelines suffer from it.

The boards are virtual (docs/virtual-boards.md).
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from across_boards import Boards, Job, build_for, exit_without_boards, keys_of, wire_ms
from convolutions import CHANNELS, SIDE, TENSOR_BYTES, WRITERS, halves
from plotting import new_figure, save_figure
from timing import console, machine, print_table, ratios, spread, start_round

from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.job import TensorSpec

COMPUTE_MS = 20.0
TARGETS = {"null": 0.92, "onnxruntime": 0.95, "litert": 0.95}
"""Of ``null`` a share of 1 / (longer of computing and message), else of the loop by hand."""

MODULES = {"onnxruntime": "onnxruntime", "litert": "ai_edge_litert"}
BARE_LOOP = Path(__file__).with_name("bare_loop.py")


@dataclass(frozen=True, slots=True)
class Round:
    """One round of measurements, in milliseconds."""

    job: float
    """Per frame."""
    bare: float
    """Per frame, of the loop by hand."""
    compute: float
    """Of the slower of the stages in that loop, per frame."""
    message: float
    """A raw message."""

    @property
    def ideal(self) -> float:
        """The time per frame if computing and the message overlap fully."""
        return max(self.compute, self.message)


def convolutions_for(engine: str, place: Path) -> int:
    """Return how many convolutions a half needs to take 20 ms here."""
    times = {count: engine_ms(engine, place, count) for count in (8, 24)}
    each = (times[24] - times[8]) / 16
    return max(1, round(8 + (COMPUTE_MS - times[8]) / each))


def engine_ms(engine: str, place: Path, convolutions: int) -> float:
    """Return the time of a half with this many convolutions, alone on one core.

    The whole model has two halves; it runs on one thread.
    """
    path = WRITERS[engine](place / f"trial{suffix(engine)}", convolutions)
    runner = open_engine(engine, EngineSettings(threads=1))
    image, mean = ends(engine)
    runner.load(path, [image], [mean])
    inputs, outputs = ([np.zeros(spec.shape, np.float32)] for spec in (image, mean))
    times = []
    for _ in range(15):
        begin = time.perf_counter()
        runner.run(inputs, outputs)
        times.append(time.perf_counter() - begin)
    runner.close()
    return 1e3 * min(times) / 2


def suffix(engine: str) -> str:
    """Return how files of an engine's models end."""
    return ".tflite" if engine == "litert" else ".onnx"


def make_job(rack: Boards, place: Path, engine: str) -> tuple[Job, list[str]]:
    """Build a job for an engine and deploy it; return what the loop by hand is told of it."""
    place.mkdir()
    model = "onnxruntime" if engine == "null" else engine
    count = 1 if engine == "null" else convolutions_for(engine, place)
    path = WRITERS[model](place / f"halves{suffix(engine)}", count)
    keys = keys_of(rack)
    mapping = dict(zip(keys, halves(count), strict=True))
    sleeps_ms = [COMPUTE_MS] * 2 if engine == "null" else []
    job = build_for(rack, place, path, mapping, sleeps_ms=sleeps_ms)
    job.deploy()
    cores = [str(rank.cores[0]) for rank in job.plan.ranks]
    files = [job.plan.of_rank(rank)[0].file for rank in range(2)]
    told = ["--bytes", str(TENSOR_BYTES), "--cores", *cores, "--models", *files]
    return job, [*told, "--sleep-ms", str(COMPUTE_MS)]


def measure(job: Job, told: Sequence[str], engine: str, frames: int) -> Round:
    """Measure once."""
    message = job.run_script(BARE_LOOP, *told, "--frames", "60")
    length = ["--frames", str(frames), "--engine", engine]
    bare = job.run_script(BARE_LOOP, *told, *length)
    own = job.frame_ms(frames)
    return Round(own, bare["frame_ms"], bare["compute_ms"], message["message_ms"])


def report(found: dict[str, list[Round]]) -> None:
    """Print what the rounds showed."""
    times, shares = [], []
    for engine, rounds in found.items():
        own, bare = [each.job for each in rounds], [each.bare for each in rounds]
        ideal = [each.ideal for each in rounds]
        to_ideal, to_bare = ratios(ideal, own), ratios(bare, own)
        measured = (
            [each.compute for each in rounds],
            [each.message for each in rounds],
            bare,
            own,
        )
        times.append((engine, *(spread(values).text(2) for values in measured)))
        reached = (to_ideal if engine == "null" else to_bare).value
        target = f"{TARGETS[engine]}: {'yes' if reached >= TARGETS[engine] else 'no'}"
        texts = (each.text(3) for each in (ratios(ideal, bare), to_ideal, to_bare))
        shares.append((engine, *texts, target))
    columns = ("engine", "computing", "message", "by hand, a frame", "job, a frame")
    print_table("Two boards, 2.26 MB a frame: milliseconds", columns, times)
    columns = ("engine", "longer / by hand", "longer / job", "by hand / job", "target")
    print_table("Against the longer of computing and message, and by hand", columns, shares)


def draw(found: dict[str, list[Round]], rate_mbit: float, files: Sequence[Path]) -> None:
    """Write a plot of the times per frame."""
    figure, axes = new_figure(6.4, 3.2)
    for offset, (name, colour) in enumerate((("by hand", "0.6"), ("job", "C0"))):
        values = [
            spread(each.job if name == "job" else each.bare for each in rounds)
            for rounds in found.values()
        ]
        places = [number + 0.35 * offset for number in range(len(values))]
        middles = [value.value for value in values]
        errors = [
            [value.value - value.low for value in values],
            [value.high - value.value for value in values],
        ]
        bars = {"width": 0.33, "color": colour, "capsize": 3, "label": f"{name}: median, 95 %"}
        axes.bar(places, middles, yerr=errors, **bars)
        for place, middle in zip(places, middles, strict=True):
            axes.annotate(f"{middle:.1f}", (place, 1), ha="center", va="bottom")
    for number, rounds in enumerate(found.values()):
        ideal = spread(each.ideal for each in rounds).value
        label = "longer of computing and message" if number == 0 else None
        axes.hlines(ideal, number - 0.2, number + 0.55, color="C3", label=label)
    wire = wire_ms(TENSOR_BYTES, rate_mbit)
    label = f"sum of {COMPUTE_MS:g} ms and {wire:.1f} ms: no overlap"
    axes.axhline(COMPUTE_MS + wire, color="0.6", linestyle=":", label=label)
    axes.set_xticks([number + 0.175 for number in range(len(found))], list(found))
    axes.set_ylim(0, 1.6 * (COMPUTE_MS + wire))
    axes.set_ylabel("ms per frame")
    axes.set_title("Two virtual boards: 20 ms of computing, 19 ms on the wire", loc="left")
    axes.legend(loc="upper left", frameon=False, ncols=2)
    save_figure(figure, files)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--engines", nargs="+", default=list(TARGETS), choices=TARGETS, metavar="ENGINE")
    add("--frames", type=int, default=150, help="per run")
    add("--rounds", type=int, default=3, help="rounds of measurements")
    add("--rate", type=float, default=1000, help="of each cable, in Mbit/s")
    add("--plot", type=Path, nargs="+", default=[], help="files to draw into, .svg or .png")
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    given = parser.parse_args()
    exit_without_boards()
    missing = [MODULES[each] for each in given.engines if each != "null" and not is_there(each)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}; or leave them out with --engines")
    console.print(machine())
    with (
        tempfile.TemporaryDirectory(prefix="rankslice-") as folder,
        Boards(2, given.rate, disk_mb=256) as rack,
    ):
        jobs = {each: make_job(rack, Path(folder) / each, each) for each in given.engines}
        found: dict[str, list[Round]] = {engine: [] for engine in jobs}
        for number in range(given.rounds):
            start_round(number + 1, given.rounds, given.patience)
            for engine, (job, told) in jobs.items():
                found[engine].append(measure(job, told, engine, given.frames))
    report(found)
    if given.plot:
        draw(found, given.rate, given.plot)


def is_there(engine: str) -> bool:
    """Tell whether an engine's package is installed."""
    return importlib.util.find_spec(MODULES[engine]) is not None


def ends(engine: str) -> tuple[TensorSpec, TensorSpec]:
    """Return the model's input and output as an engine has them."""
    channels_last = engine == "litert"
    image = (1, SIDE, SIDE, 1) if channels_last else (1, 1, SIDE, SIDE)
    mean = (1, 1, 1, CHANNELS) if channels_last else (1, CHANNELS, 1, 1)
    return TensorSpec("image", "float32", image), TensorSpec("mean", "float32", mean)


if __name__ == "__main__":
    main()
