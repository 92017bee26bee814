"""What an open channel costs whose tensor is mostly empty, against a fixed one of as many bytes.

A job of two ranks hands a tensor on: one whose bound is ten times as large and that is 10 % full,
or one of fixed size. Nothing is computed, and the sender fills what is there. Both jobs run in
turn, at full speed and with one frame at a time. With ``--boards`` each rank has a virtual board,
and messages cross a cable; else they share memory, or with ``--no-direct`` use MPI.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from across_boards import Boards, Job, boards_if, build_for, keys_of
from null_jobs import parts_model
from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.backend.package import write_driver, write_packages
from rankslice.framework.plan import Plan

SHARE = 0.1
FIXED, OPEN = "fixed", "open"


def make_job(place: Path, size: int, boards: Boards | None, *, is_open: bool) -> Job:
    """Build a job whose tensor has ``size`` bytes, or the first of so many."""
    place.mkdir()
    model, parts = parts_model([size])
    onnx.save(model, place / "model.onnx")
    mapping = dict(zip(keys_of(boards, 2), parts, strict=True))
    job = build_for(boards, place, place / "model.onnx", mapping)
    let_fill(job.folder, job.plan, is_open=is_open)
    job.deploy()
    return job


def frame_ms(job: Job, frames: int, **options: Any) -> tuple[float, float]:
    """Return the time of a frame, and what both ranks take of processors."""
    summary = job.run(frames, **options)
    return 1e3 / summary.throughput_fps, sum(rank.cpu_ms for rank in summary.ranks)


def let_fill(folder: Path, plan: Plan, *, is_open: bool) -> None:
    """Have ``filling.py`` take the place of the null engine of a build folder."""
    ranks = tuple(
        dataclasses.replace(rank, engine="null", options=(("share", str(SHARE)),))
        for rank in plan.ranks
    )
    between = tuple(
        dataclasses.replace(tensor, symbols=("", "?"))
        if is_open and tensor.name == "x1"
        else tensor
        for tensor in plan.job.between
    )
    changed = dataclasses.replace(
        plan, job=dataclasses.replace(plan.job, ranks=ranks, between=between)
    )
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
    args = parser.parse_args()
    console.print(machine())
    size = int(1e3 * args.kilobytes)
    with (
        tempfile.TemporaryDirectory(prefix="rankslice-") as place,
        boards_if(2 * args.boards) as boards,
    ):
        jobs = {
            FIXED: make_job(Path(place, FIXED), size, boards, is_open=False),
            OPEN: make_job(Path(place, OPEN), round(size / SHARE), boards, is_open=True),
        }
        direct = not args.no_direct
        runs = {
            (name, window): partial(frame_ms, job, args.frames, window=window, direct=direct)
            for name, job in jobs.items()
            for window in (None, 1)
        }
        results = in_turns(args.rounds, runs)
    rows = []
    for (name, window), runs in sorted(results.items(), key=str):
        pace = "full speed" if window is None else "one frame at a time"
        row = [f"{name}, {pace}"]
        for kind in (0, 1):
            values, beside = ([run[kind] for run in r] for r in (runs, results[FIXED, window]))
            row += [spread(values).text(3), ratios(values, beside).text(2)]
        rows.append(row)
    columns = ("", "ms a frame", "to fixed, 95 %", "processor, ms a frame", "to fixed, 95 %")
    title = f"{size / 1e3:g} kB a frame; the open one's bound is {size / SHARE / 1e6:g} MB"
    print_table(title, columns, rows)


if __name__ == "__main__":
    main()
