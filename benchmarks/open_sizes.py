"""What an open channel costs whose tensor is mostly empty, against a fixed one of as many bytes.

A job of two ranks hands a tensor on: one whose bound is ten times as large and that is 10 % full,
or one of fixed size. Nothing is computed, and the sender fills what is there. Both jobs run in
turn, at full speed and with one frame at a time. With ``--boards`` each rank has a virtual board,
and messages cross a cable; else they share memory, or with ``--no-direct`` use MPI.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import onnx
from across_boards import RATE_MBIT, Boards, build_for, exit_without_boards, keys_of
from null_jobs import parts_model
from timing import console, machine, print_table, ratios, spread, start_round

from rankslice.backend.package import write_driver, write_packages
from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.build.build import build
from rankslice.commands.deploy.deploy import deploy, plan_deployment
from rankslice.commands.run.run import PreparedRun, prepare, run
from rankslice.framework.plan import Plan

SHARE = 0.1
CORES = ("local_cpu0", "local_cpu1")
FIXED, OPEN = "fixed", "open"


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A build folder, and how to reach its boards."""

    folder: Path
    boards: Boards | None
    is_direct: bool

    def prepared(self, frames: int, window: int | None) -> PreparedRun:
        """Return a run, ready to start."""
        options = RunOptions(frames=frames, window=window, direct=self.is_direct)
        return prepare(self.folder, options, ssh_config=self.boards and self.boards.ssh_config)


def make_job(
    place: Path, size: int, boards: Boards | None, *, is_open: bool, is_direct: bool
) -> Job:
    """Build a job whose tensor has ``size`` bytes, or the first of so many."""
    place.mkdir()
    model, parts = parts_model([size])
    onnx.save(model, place / "model.onnx")
    keys = CORES if boards is None else keys_of(boards)
    mapping = dict(zip(keys, parts, strict=True))
    if boards is None:
        (place / "mapping.json").write_text(json.dumps(mapping))
        built = build(place / "model.onnx", place / "mapping.json", "local", place / "out")
        folder, plan = built.folder, built.plan
    else:
        found = build_for(boards, place, place / "model.onnx", mapping)
        folder, plan = found.folder, found.plan
    let_fill(folder, plan, is_open=is_open)
    if boards is not None:
        deploy(plan_deployment(folder, ssh_config=boards.ssh_config))
    return Job(folder, boards, is_direct)


def let_fill(folder: Path, plan: Plan, *, is_open: bool) -> None:
    """Have ``filling.py`` take the place of the null engine of a build folder."""
    ranks = tuple(
        dataclasses.replace(rank, engine="null", options=(("share", str(SHARE)),))
        for rank in plan.ranks
    )
    tensors = tuple(
        dataclasses.replace(tensor, symbols=("", "?"))
        if is_open and tensor.name == "x1"
        else tensor
        for tensor in plan.tensors
    )
    changed = dataclasses.replace(plan, ranks=ranks, tensors=tensors)
    shutil.rmtree(folder / "packages")
    write_driver(folder, changed)
    engine = Path(__file__).with_name("filling.py")
    shutil.copy(engine, folder / "runtime" / "engines" / "null_engine.py")
    write_packages(folder, changed)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--kilobytes", type=float, default=300, help="of each message")
    add("--boards", action="store_true", help="a virtual board for each rank")
    add("--no-direct", action="store_true", help="messages between ranks of one board, too")
    add("--frames", type=int, default=500, help="per run")
    add("--rounds", type=int, default=10, help="runs of each")
    given = parser.parse_args()
    if given.boards:
        exit_without_boards()
    console.print(machine())
    size = int(1e3 * given.kilobytes)
    found: dict[tuple[str, int | None], list[tuple[float, float]]] = {}
    with ExitStack() as resources:
        folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="rankslice-"))
        boards = resources.enter_context(Boards(2, RATE_MBIT)) if given.boards else None
        sizes = {FIXED: size, OPEN: round(size / SHARE)}
        jobs = {
            name: make_job(
                Path(folder, name),
                each,
                boards,
                is_open=name == OPEN,
                is_direct=not given.no_direct,
            )
            for name, each in sizes.items()
        }
        for number in range(given.rounds):
            start_round(number + 1, given.rounds, 0)
            for name in (FIXED, OPEN) if number % 2 == 0 else (OPEN, FIXED):
                for window in (None, 1):
                    summary = run(jobs[name].prepared(given.frames, window)).summary
                    cpu_ms = sum(rank.cpu_ms for rank in summary.ranks)
                    measured = 1e3 / summary.throughput_fps, cpu_ms
                    found.setdefault((name, window), []).append(measured)
    rows = []
    for (name, window), runs in sorted(found.items(), key=str):
        pace = "full speed" if window is None else "one frame at a time"
        row = [f"{name}, {pace}"]
        for kind in (0, 1):
            values, beside = ([each[kind] for each in r] for r in (runs, found[FIXED, window]))
            row += [spread(values).text(3), ratios(values, beside).text(2)]
        rows.append(row)
    columns = ("", "ms a frame", "to fixed, 95 %", "processor, ms a frame", "to fixed, 95 %")
    title = f"{size / 1e3:g} kB a frame; the open one's bound is {size / SHARE / 1e6:g} MB"
    print_table(title, columns, rows)


if __name__ == "__main__":
    main()
