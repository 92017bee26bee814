"""Jobs on this machine or on virtual boards: built, deployed, ready to run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from null_jobs import keys_of_cores, let_sleep

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.plan import Plan
from rankslice.measurement.summary import RunSummary
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.deployment import deploy, plan_deployment
from rankslice.session.run import PreparedRun, prepare, run
from rankslice.session.shared_options import Launching

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from boards import Boards, why_not

__all__ = [
    "ON_THE_WIRE",
    "RATE_MBIT",
    "Boards",
    "Job",
    "boards_if",
    "build_for",
    "exit_without_boards",
    "keys_of",
    "wire_ms",
]

ON_THE_WIRE = 1 + 66 / 1448
"""Of a byte that TCP carries: 1448 to a segment, with 66 of Ethernet, IP and TCP."""

RATE_MBIT = 1000.0
"""Of each virtual board's cable, in each direction, unless it is what a benchmark varies."""


def exit_without_boards() -> None:
    """End with a message if there can be no virtual boards here."""
    reason = why_not()
    if reason:
        sys.exit(reason)


@contextmanager
def boards_if(count: int) -> Iterator[Boards | None]:
    """Yield so many virtual boards, if there are to be any; else this machine is meant."""
    if not count:
        yield None
        return
    exit_without_boards()
    with Boards(count, RATE_MBIT) as boards:
        yield boards


def wire_ms(size: int, rate_mbit: float) -> float:
    """Return the time that a tensor of ``size`` bytes takes on a cable, in milliseconds."""
    return size * ON_THE_WIRE * 8 / (rate_mbit * 1e3)


def keys_of(boards: Boards | None, ranks: int | None = None) -> list[str]:
    """Return mapping keys of ranks, board by board in turn, each on a core of its own if possible.

    Args:
        boards: that are up; ``None``: this machine.
        ranks: how many; one for each board by default.
    """
    if boards is None:
        assert ranks is not None
        return keys_of_cores(ranks)
    cores, count = sorted(os.sched_getaffinity(0)), len(boards)
    return [
        f"{boards[n % count].name}_cpu{cores[n % count % len(cores)]}"
        + f".{n // count + 1}" * (n >= count)
        for n in range(count if ranks is None else ranks)
    ]


@dataclass(frozen=True, slots=True)
class Job:
    """A build folder, and the boards that run it."""

    boards: Boards | None
    """``None``: this machine."""
    folder: Path
    plan: Plan

    def deploy(self) -> None:
        """Bring the packages to the boards; what is there does not move again."""
        if self.boards is not None:
            deploy(plan_deployment(self.folder, ssh_config=self.boards.ssh_config))

    def prepared(self, frames: int, **options: Any) -> PreparedRun:
        """Return a run of this many frames, ready to start, with options of ``RunOptions``."""
        launching = Launching(ssh_config=self.boards and self.boards.ssh_config)
        return prepare(self.folder, RunOptions(frames=frames, **options), launching)

    def run(self, frames: int, **options: Any) -> RunSummary:
        """Run the job, and return its figures."""
        return run(self.prepared(frames, **options)).summary


def build_for(
    boards: Boards | None,
    place: Path,
    model: Path,
    mapping: Mapping[str, Sequence[str]],
    *,
    sleeps_ms: Sequence[float] = (),
    share_cores: bool = False,
    **options: Any,
) -> Job:
    """Slice a model for virtual boards, or for this machine.

    Args:
        boards: that are up; ``None``: this machine.
        place: an existing folder to build in.
        model: the model file.
        mapping: keys and their layers.
        sleeps_ms: how long each rank sleeps instead of computing; empty: they compute.
        share_cores: whether ranks may share cores.
        options: of ``BuildOptions``.
    """
    platform = "local"
    if boards is not None:
        cores = max(os.sched_getaffinity(0)) + 1
        hosts = {board.name: {"host": board.address, "cores": cores} for board in boards}
        platform = str(place / "platform.yaml")
        (place / "platform.yaml").write_text(json.dumps({"boards": hosts}))
    (place / "mapping.json").write_text(json.dumps(mapping))
    paths = (place / "mapping.json", platform, place / "out")
    built = build(model, *paths, BuildOptions(share_cores=share_cores, **options))
    plan = let_sleep(built.folder, built.plan, sleeps_ms) if sleeps_ms else built.plan
    return Job(boards, built.folder, plan)
