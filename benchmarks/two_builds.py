"""Source trees of RankSlice against each other: each builds the same job, and they run it in turn.

    git worktree add ../before COMMIT
    python benchmarks/two_builds.py before=../before now=. --model squeezenet --rounds 10
    python benchmarks/two_builds.py before=../before now=. --pieces 0:24 1:32 0:24 --boards

The job has two ranks on a core each and runs stored frames. Its model is a network, or with
``--pieces`` slices of so many convolutions, each with its rank, and messages of ``--megabytes``
between them. With `--boards` each rank has a virtual board, and messages cross a cable.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from across_boards import RATE_MBIT, Boards, build_for, exit_without_boards, keys_of
from message_cost import CORES, Case, mapping_of, write_model
from pipeline_efficiency import model_of, shipped_mapping, store_frames
from timing import console, machine, print_table, ratios, spread, start_round

from rankslice.commands.build.build import build

COMMAND = """
try:
    from rankslice.commands import main
except ImportError:  # where an older tree has it
    from rankslice.framework.cli import main
main()
"""


@dataclass(frozen=True, slots=True)
class Tree:
    """A source tree of RankSlice."""

    name: str
    sources: Path

    def rankslice(self, *arguments: str | Path) -> None:
        """Run the tree's own command line; end if it fails, with what it said."""
        ended = subprocess.run(
            [sys.executable, "-c", COMMAND, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(self.sources)},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            sys.exit(f"{self.name}: rankslice {arguments[0]} failed:\n{ended.stdout}{ended.stderr}")


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, in milliseconds per frame."""

    frame: float
    cpu: tuple[float, ...]
    """Processor time, by rank."""
    compute: tuple[float, ...]
    """Wall time of the engine, by rank."""


@dataclass(frozen=True, slots=True)
class Job:
    """What every tree builds and runs."""

    model: Path
    mapping: Path
    platform: str
    frames: Path
    ssh: tuple[str, ...]
    """Options with which commands reach boards; none on this machine alone."""

    def build(self, tree: Tree, out: Path) -> None:
        """Build it with a tree."""
        options = ("--mapping", self.mapping, "--platform", self.platform, "--out", out)
        tree.rankslice("build", self.model, *options)

    def run(self, tree: Tree, out: Path, count: int) -> Measured:
        """Run a tree's build of it; boards get its packages first."""
        if self.ssh:
            tree.rankslice("deploy", out, *self.ssh)
        report = out.with_suffix(".json")
        options = ("--input", self.frames, "--frames", str(count), "--json", report)
        tree.rankslice("run", out, *options, *self.ssh)
        told = json.loads(report.read_text())
        return Measured(
            1e3 / told["throughput_fps"],
            tuple(rank["cpu_ms"] for rank in told["ranks"]),
            tuple(rank["compute_ms"]["mean"] for rank in told["ranks"]),
        )


def make_job(
    place: Path, boards: Boards | None, given: argparse.Namespace, case: Case | None
) -> Job:
    """Write model, mapping, platform and frames; the tree of this script slices the model once."""
    keys = list(CORES) if boards is None else keys_of(boards)
    if case:
        model = place / "model.onnx"
        layers = write_model(model, case)
        mapping = mapping_of(case, keys, layers)
    else:
        model = model_of(given.model)
        read = json.loads((given.mapping or shipped_mapping(given.model)).read_text())
        if len(read) != len(keys):
            sys.exit(f"the mapping has {len(read)} keys; this takes one with {len(keys)}")
        mapping = dict(zip(keys, read.values(), strict=True))
    if boards:
        plan = build_for(boards, place, model, mapping).plan
        platform, ssh = str(place / "platform.yaml"), ("--ssh-config", str(boards.ssh_config))
    else:
        (place / "mapping.json").write_text(json.dumps(mapping))
        plan = build(model, place / "mapping.json", "local", place / "out").plan
        platform, ssh = "local", ()
    frames = store_frames(plan, place / "frames.npz")
    return Job(model, place / "mapping.json", platform, frames, ssh)


def measure(
    job: Job, trees: Sequence[Tree], place: Path, given: argparse.Namespace
) -> dict[str, list[Measured]]:
    """Build with each tree, then run them in turn; every other round in the opposite order."""
    outs = {tree.name: place / "trees" / tree.name for tree in trees}
    for tree in trees:
        job.build(tree, outs[tree.name])
    found: dict[str, list[Measured]] = {tree.name: [] for tree in trees}
    for number in range(given.rounds):
        start_round(number + 1, given.rounds, given.patience)
        for tree in trees if number % 2 == 0 else reversed(trees):
            found[tree.name].append(job.run(tree, outs[tree.name], given.frames))
    return found


def report(title: str, found: dict[str, list[Measured]]) -> None:
    """Print what the rounds showed."""
    first = [each.frame for each in next(iter(found.values()))]
    rows = [
        (
            name,
            spread(each.frame for each in rounds).text(2),
            ratios([each.frame for each in rounds], first).text(3),
            by_rank(each.cpu for each in rounds),
            by_rank(each.compute for each in rounds),
        )
        for name, rounds in found.items()
    ]
    columns = ("tree", "ms a frame", "to the first", "processor, by rank", "engine, by rank")
    print_table(title, columns, rows)


def by_rank(values: Iterable[tuple[float, ...]]) -> str:
    """Return the median of each rank's values."""
    return ", ".join(f"{median(of_rank):.2f}" for of_rank in zip(*values, strict=True))


def tree(text: str) -> Tree:
    """Read ``NAME=FOLDER``."""
    name, _, folder = text.partition("=")
    sources = Path(folder or ".").resolve() / "src"
    if not name.isidentifier() or not (sources / "rankslice").exists():
        raise argparse.ArgumentTypeError(f"{text} is not NAME=FOLDER with src/rankslice in FOLDER")
    return Tree(name, sources)


def piece(text: str) -> tuple[int, int]:
    """Read ``RANK:CONVOLUTIONS``."""
    rank, _, convolutions = text.partition(":")
    if rank not in ("0", "1") or not convolutions.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not RANK:CONVOLUTIONS, with rank 0 or 1")
    return int(rank), int(convolutions)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("trees", nargs="+", type=tree, metavar="NAME=FOLDER", help="source trees")
    add("--model", default="squeezenet", help="network of the zoo, resnet50.tflite, or a file")
    add("--mapping", type=Path, help="default: the shipped one for two ranks")
    add("--pieces", nargs="+", type=piece, help="instead of a model: RANK:CONVOLUTIONS of slices")
    add("--megabytes", type=float, default=1, help="of each message between these")
    add("--boards", action="store_true", help="a virtual board for each rank")
    add("--frames", type=int, default=200, help="per run")
    add("--rounds", type=int, default=5, help="rounds of measurements")
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    given = parser.parse_args()
    if given.boards:
        exit_without_boards()
    case = Case(given.megabytes, tuple(given.pieces)) if given.pieces else None
    if case and {rank for rank, _ in case.pieces} != {0, 1}:
        parser.error("--pieces needs slices of both ranks")
    console.print(machine())
    with ExitStack() as resources:
        place = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="rankslice-")))
        boards = None
        if given.boards:
            boards = resources.enter_context(Boards(len(CORES), RATE_MBIT))
        job = make_job(place, boards, given, case)
        found = measure(job, given.trees, place, given)
    name = given.model
    if case:
        name = f"slower rank {case.role}, {case.megabytes:g} MB a message"
    report(f"{name}, {given.frames} frames a run", found)


if __name__ == "__main__":
    main()
