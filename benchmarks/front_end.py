"""How long it takes to slice large models into sub-models, against copying their files.

Each round measures, in turn: ``cp`` of the model's files; reading, partitioning and writing the
sub-models; and a whole build, which also hashes what it reads and writes. Every
target is new, and what was written reaches the disk before the next measurement begins. The
peak memory is that of a process of its own that builds once, its interpreter included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from large_models import gigabytes, resnet101
from null_jobs import keys_of_cores
from pipeline_efficiency import model_of
from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.framework.specs.assign import assign
from rankslice.framework.specs.read_mapping import read_mapping
from rankslice.frontend.formats import read_model, submodel_files
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import partition
from rankslice.session.building.build import BuildOptions, build

RANKS = 24
COPIED, SPLIT, BUILT = "cp", "read, partition, write", "whole build with hashes"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement of AutoDiCE's front end, with the same number of sub-models."""

    where: str
    seconds: float
    peak_mb: float | None = None


HERE, PAPER = "AutoDiCE, such a machine", "AutoDiCE, paper (i7-9850H)"
AUTODICE = {
    "vgg19": (Figure(HERE, 182, 3900), Figure(PAPER, 21.5)),
    "resnet101": (Figure(HERE, 18.7, 1250), Figure(PAPER, 7.3)),
    "densenet121": (Figure(HERE, 3.3), Figure(PAPER, 1.93)),
}
OTHERS = {"resnet101": resnet101, "2.3-gigabytes": gigabytes}
"""Models that are made anew."""
MODELS = ("vgg19", "resnet101", "densenet121", "2.3-gigabytes")


@dataclass(frozen=True, slots=True)
class Alone:
    """A build in a process of its own."""

    seconds: float
    """From the start of the interpreter to its end."""
    peak_mb: float
    """Resident memory, in 10^6 bytes."""


def write_mapping(model: Path, path: Path, ranks: int = RANKS) -> Path:
    """Write a mapping of contiguous ranges to ranks that share this machine's cores."""
    layers = [layer.name for layer in read_model(model).graph.layers]
    ends = [rank * len(layers) // ranks for rank in range(ranks + 1)]
    parts = (layers[begin:end] for begin, end in pairwise(ends))
    path.write_text(json.dumps(dict(zip(keys_of_cores(ranks), parts, strict=True))))
    return path


def files_of(model: Path) -> list[Path]:
    """Return a model's file, and that of its weights if they lie beside it."""
    data = model.with_suffix(".data")
    return [model, data] if data.exists() else [model]


def copy(model: Path, target: Path) -> None:
    """Copy the files as everybody would."""
    target.mkdir()
    subprocess.run(["cp", *files_of(model), target], check=True)


def split(model: Path, mapping: Path, target: Path) -> None:
    """Read the model, partition it, and write the sub-models."""
    loaded = read_model(model)
    cut = partition(loaded.graph, assign(read_mapping(mapping), loaded.graph).entry_of)
    target.mkdir()
    for number, part in enumerate(cut.segments):
        path = target / f"{number}{model.suffix}"
        write_submodel(submodel_files(loaded, part, name=path.name), path)


def seconds(work: Callable[[Path], object], target: Path) -> float:
    """Return how long ``work`` takes to make ``target``, which is removed again."""
    os.sync()
    begin = time.perf_counter()
    work(target)
    passed = time.perf_counter() - begin
    os.sync()
    shutil.rmtree(target)
    return passed


def measure(model: Path, mapping: Path, place: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way, round by round; the model is read into memory before."""
    options = BuildOptions(share_cores=True)
    ways: dict[str, Callable[[Path], object]] = {
        COPIED: lambda target: copy(model, target),
        SPLIT: lambda target: split(model, mapping, target),
        BUILT: lambda target: build(model, mapping, "local", target, options),
    }
    seconds(ways[COPIED], place / "target")
    turns = {name: partial(seconds, way, place / "target") for name, way in ways.items()}
    return in_turns(rounds, turns)


def build_alone(model: Path, mapping: Path, target: Path) -> Alone:
    """Build in a process of its own and return what that took."""
    os.sync()
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--build", str(model), str(mapping), str(target)]
    peak = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    passed = time.perf_counter() - begin
    shutil.rmtree(target)
    return Alone(passed, float(peak))


def build_and_tell(model: Path, mapping: Path, target: Path) -> None:
    """Build, then print this process's peak resident memory in 10^6 bytes."""
    build(model, mapping, "local", target, BuildOptions(share_cores=True))
    status = Path("/proc/self/status").read_text().splitlines()
    # ru_maxrss would count what the parent had in memory when it made this process.
    (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM:"))
    print(int(peak) * 1024 / 1e6)


def report(
    name: str, size: int, ranks: int, seconds: dict[str, list[float]], alone: Sequence[Alone]
) -> None:
    """Print what the rounds showed, and AutoDiCE's figures for comparison."""
    copied = seconds[COPIED]
    middle = spread(copied).value
    rows = [
        (what, spread(values).text(3), ratios(values, copied).text(2), "")
        for what, values in seconds.items()
    ]
    whole = spread(run.seconds for run in alone)
    peak = f"{max(run.peak_mb for run in alone):.0f} MB"
    rows.append(("process that builds", whole.text(3), f"{whole.value / middle:.2f}", peak))
    for figure in AUTODICE.get(name, ()):
        memory = f"{figure.peak_mb:.0f} MB" if figure.peak_mb else ""
        rows.append((figure.where, f"{figure.seconds}", f"{figure.seconds / middle:.0f}", memory))
    title = f"{name}, {size / 1e6:.0f} MB, {ranks} sub-models, {len(copied)} rounds"
    print_table(title, ("", "seconds", "ratio to cp", "peak memory"), rows)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    others = "2.3-gigabytes, resnet101, networks of the zoo, NAME.tflite of Keras's, or files"
    add("--models", nargs="+", default=MODELS, metavar="NAME", help=others)
    add("--ranks", type=int, default=RANKS, help="sub-models")
    add("--rounds", type=int, default=5, help="rounds of measurements")
    add("--folder", type=Path, help="where to write (default: the folder for temporary files)")
    add("--build", nargs=3, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build:
        build_and_tell(*args.build)
        return
    console.print(machine())
    for name in args.models:
        with tempfile.TemporaryDirectory(prefix="rankslice-", dir=args.folder) as folder:
            place = Path(folder)
            model = OTHERS[name](place / f"{name}.onnx") if name in OTHERS else model_of(name)
            mapping = write_mapping(model, place / "mapping.json", args.ranks)
            seconds = measure(model, mapping, place, args.rounds)
            alone = [build_alone(model, mapping, place / "out") for _ in range(3)]
            size = sum(path.stat().st_size for path in files_of(model))
        report(name, size, args.ranks, seconds, alone)


if __name__ == "__main__":
    main()
