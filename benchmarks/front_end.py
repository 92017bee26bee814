"""How long it takes to slice large models into 24 sub-models, against copying their files.

Each round measures, one after the other: ``cp`` of the model's files; reading, partitioning and
writing the sub-models; and a whole build, which also hashes what it reads and writes. Every
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
from pathlib import Path

from large_models import gigabytes, resnet101
from timing import console, machine, print_table, ratios, spread, start_round

from rankslice.commands.build.build import BuildOptions, build
from rankslice.framework.specs.assign import assign
from rankslice.framework.specs.read_mapping import read_mapping
from rankslice.frontend.formats import read_model, submodel_files
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import partition
from rankslice.networks.zoo import zoo_model, zoo_names

RANKS = 24


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
class Round:
    """Seconds."""

    copied: float
    split: float
    built: float


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
    cores = sorted(os.sched_getaffinity(0))
    mapping = {}
    for rank in range(ranks):
        turn, core = divmod(rank, len(cores))
        part = layers[rank * len(layers) // ranks : (rank + 1) * len(layers) // ranks]
        mapping[f"local_cpu{cores[core]}" + (f".{turn + 1}" if turn else "")] = part
    path.write_text(json.dumps(mapping))
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
    ranks = assign(read_mapping(mapping), loaded.graph).entries()
    cut = partition(loaded.graph, {layer: found[0] for layer, found in ranks.items()})
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


def measure(model: Path, mapping: Path, place: Path, rounds: int, patience_s: float) -> list[Round]:
    """Return all rounds; one more comes before them, so that the model is in memory."""
    found = []
    for number in range(rounds + 1):
        start_round(number, rounds, patience_s)
        found.append(
            Round(
                seconds(lambda target: copy(model, target), place / "copy"),
                seconds(lambda target: split(model, mapping, target), place / "parts"),
                seconds(
                    lambda target: build(
                        model, mapping, "local", target, BuildOptions(share_cores=True)
                    ),
                    place / "out",
                ),
            )
        )
    return found[1:]


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
    name: str, size: int, rounds: Sequence[Round], alone: Sequence[Alone], ranks: int = RANKS
) -> None:
    """Print what the rounds showed, and AutoDiCE's figures for comparison."""
    copied = [each.copied for each in rounds]
    middle = spread(copied).value
    parts = {
        "cp": copied,
        "read, partition, write": [each.split for each in rounds],
        "whole build with hashes": [each.built for each in rounds],
    }
    rows = [
        (what, spread(values).text(3), ratios(values, copied).text(2), "")
        for what, values in parts.items()
    ]
    whole = spread(each.seconds for each in alone)
    peak = f"{max(each.peak_mb for each in alone):.0f} MB"
    rows.append(("process that builds", whole.text(3), f"{whole.value / middle:.2f}", peak))
    for figure in AUTODICE.get(name, ()):
        memory = f"{figure.peak_mb:.0f} MB" if figure.peak_mb else ""
        rows.append((figure.where, f"{figure.seconds}", f"{figure.seconds / middle:.0f}", memory))
    title = f"{name}, {size / 1e6:.0f} MB, {ranks} sub-models, {len(rounds)} rounds"
    print_table(title, ("", "seconds", "ratio to cp", "peak memory"), rows)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    known = [*zoo_names(), *OTHERS]
    add("--models", nargs="+", default=MODELS, choices=known, metavar="NETWORK")
    add("--rounds", type=int, default=5, help="rounds of measurements")
    add("--folder", type=Path, help="where to write (default: the folder for temporary files)")
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    add("--build", nargs=3, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.build:
        build_and_tell(*given.build)
        return
    console.print(machine())
    for name in given.models:
        with tempfile.TemporaryDirectory(prefix="rankslice-", dir=given.folder) as folder:
            place = Path(folder)
            model = OTHERS[name](place / f"{name}.onnx") if name in OTHERS else zoo_model(name)
            mapping = write_mapping(model, place / "mapping.json")
            rounds = measure(model, mapping, place, given.rounds, given.patience)
            alone = [build_alone(model, mapping, place / "out") for _ in range(3)]
            size = sum(path.stat().st_size for path in files_of(model))
        report(name, size, rounds, alone)


if __name__ == "__main__":
    main()
