"""AutoDiCE's Table I: the time of front end, back end and deployment, with its figures beside ours.

DenseNet-121, ResNet-101 and VGG-19 are cut into 24 sub-models, three for each of eight boards; each
board gets its package for the first time. The boards are virtual (docs/virtual-boards.md), each on
a cable of 1 Gbit/s, and so is this machine: what it sends to all of them together is limited, too.
What rsync, sshd and the checks of files on the boards compute, this machine's cores compute.

Front end: read, partition, write the sub-models and tables. Back end: driver, packages, and a
manifest with the hash of every file. Deployment: until all boards have checked their packages.

Source of the paper's figures: AutoDiCE, Table I, on an i7-9850H and eight Jetson Xavier NX.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from across_boards import Boards, exit_without_boards
from front_end import AUTODICE, HERE, OTHERS, RANKS
from timing import console, in_turns, machine, print_table, spread

from rankslice.frontend.formats import read_model
from rankslice.networks.zoo import zoo_model
from rankslice.session.building.build import build
from rankslice.session.deployment import deploy, plan_deployment

BOARDS = 8
DISK_MB = 1200
PHASES = ("front end", "back end", "deployment")
PAPER = {
    "densenet121": (1.93, 0.3, 21.3),
    "resnet101": (7.30, 0.1, 23.3),
    "vgg19": (21.50, 0.4, 26.9),
}
"""Seconds of each phase."""


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of each phase, and what was sent."""

    seconds: tuple[float, float, float]
    sent_bytes: int


def write_specs(rack: Boards, model: Path, place: Path) -> tuple[Path, Path]:
    """Write a mapping of contiguous layers to the boards, and their platform."""
    layers = [layer.name for layer in read_model(model).graph.layers]
    per_board = RANKS // BOARDS
    mapping = {
        f"{rack[rank // per_board].name}_cpu{rank % per_board}": layers[
            rank * len(layers) // RANKS : (rank + 1) * len(layers) // RANKS
        ]
        for rank in range(RANKS)
    }
    hosts = {board.name: {"host": board.address, "cores": per_board} for board in rack}
    (place / "mapping.json").write_text(json.dumps(mapping))
    (place / "platform.yaml").write_text(json.dumps({"boards": hosts}))
    return place / "mapping.json", place / "platform.yaml"


def measure(rack: Boards, model: Path, specs: tuple[Path, Path], out: Path) -> Round:
    """Build and deploy to boards that have nothing."""
    for board in rack:
        board.run(["rm", "-rf", "/root/.rankslice"])
    os.sync()
    begun: dict[str, float] = {}
    begin = time.perf_counter()
    mapping, platform = specs
    build(
        model,
        mapping,
        str(platform),
        out,
        on_step=lambda step: begun.setdefault(step, time.perf_counter()),
    )
    built = time.perf_counter()
    done = deploy(plan_deployment(out, ssh_config=rack.ssh_config))
    ended = time.perf_counter()
    shutil.rmtree(out)
    back = begun["generating the driver"]
    seconds = (back - begin, built - back, ended - built)
    return Round(seconds, sum(board.bytes_sent for board in done))


def rows_of(name: str, rounds: Sequence[Round]) -> Iterable[tuple[str, ...]]:
    """Yield a row of the table for each phase."""
    here = {figure.where: figure.seconds for figure in AUTODICE[name]}[HERE]
    for number, phase in enumerate(PHASES):
        ours = spread(turn.seconds[number] for turn in rounds)
        paper = PAPER[name][number]
        beside = (f"{here:g}", f"{here / ours.value:.0f}") if number == 0 else ("", "")
        yield name, phase, ours.text(2), f"{paper:g}", f"{paper / ours.value:.1f}", *beside
    total = spread(sum(turn.seconds) for turn in rounds)
    paper = sum(PAPER[name])
    yield name, "all", total.text(2), f"{paper:.1f}", f"{paper / total.value:.1f}", "", ""


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--models", nargs="+", default=list(PAPER), choices=PAPER, metavar="NETWORK")
    add("--rounds", type=int, default=3, help="rounds of measurements")
    add("--rate", type=float, default=1000, help="of each cable, in Mbit/s")
    add("--folder", type=Path, help="where to write (default: the folder for temporary files)")
    args = parser.parse_args()
    exit_without_boards()
    console.print(machine())
    with (
        tempfile.TemporaryDirectory(prefix="rankslice-", dir=args.folder) as folder,
        Boards(BOARDS, args.rate, disk_mb=DISK_MB) as rack,
    ):
        rack.set_host_rate(args.rate)
        place = Path(folder)
        rows: list[tuple[str, ...]] = []
        for name in args.models:
            console.print(name, style="dim")
            model = OTHERS[name](place / f"{name}.onnx") if name in OTHERS else zoo_model(name)
            specs = write_specs(rack, model, place)
            turn = partial(measure, rack, model, specs, place / "out")
            rounds = in_turns(args.rounds, {name: turn})[name]
            sent = spread(turn.sent_bytes / 1e6 for turn in rounds)
            console.print(f"{name}: {sent.value:.0f} MB sent to the boards", style="dim")
            rows += rows_of(name, rounds)
    columns = (
        "network",
        "phase",
        "seconds",
        "AutoDiCE, paper, s",
        "times as fast",
        "AutoDiCE, such a machine, s",
        "times as fast",
    )
    print_table("24 sub-models on 8 boards", columns, rows)


if __name__ == "__main__":
    main()
