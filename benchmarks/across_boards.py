"""Jobs on virtual boards: built, deployed and run, and scripts that run beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from null_jobs import let_sleep

from rankslice.backend.boards.ssh import FOLDER, below_home, shell_words
from rankslice.backend.launch.mpirun import find_mpirun, launch_command
from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.build.build import BuildOptions, build
from rankslice.commands.deploy.deploy import deploy, plan_deployment
from rankslice.commands.run.run import PreparedRun, prepare, run
from rankslice.framework.plan import Plan

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from boards import Boards, why_not

__all__ = [
    "ON_THE_WIRE",
    "RATE_MBIT",
    "Boards",
    "Job",
    "build_for",
    "exit_without_boards",
    "keys_of",
    "wire_ms",
]

ON_THE_WIRE = 1 + 66 / 1448
"""Of a byte that TCP carries: 1448 to a segment, with 66 of Ethernet, IP and TCP."""

RATE_MBIT = 1000.0
"""Of each virtual board's cable, in each direction, unless it is what a benchmark varies."""

_SCRIPT = "/root/script.py"
_TIMEOUT_S = 120


def exit_without_boards() -> None:
    """End with a message if there can be no virtual boards here."""
    reason = why_not()
    if reason:
        sys.exit(reason)


def wire_ms(size: int, rate_mbit: float) -> float:
    """Return the time that a tensor of ``size`` bytes takes on a cable, in milliseconds."""
    return size * ON_THE_WIRE * 8 / (rate_mbit * 1e3)


def keys_of(boards: Boards) -> list[str]:
    """Return a mapping key for each board, its core another one than the next board's."""
    cores = sorted(os.sched_getaffinity(0))
    return [f"{board.name}_cpu{cores[number % len(cores)]}" for number, board in enumerate(boards)]


@dataclass(frozen=True, slots=True)
class Job:
    """A build folder whose boards have their packages."""

    boards: Boards
    folder: Path
    plan: Plan

    def deploy(self) -> None:
        """Bring the packages to the boards; what is there does not move again."""
        deploy(plan_deployment(self.folder, ssh_config=self.boards.ssh_config))

    def prepared(self, frames: int) -> PreparedRun:
        """Return a run of this many frames, ready to start."""
        return prepare(self.folder, RunOptions(frames=frames), ssh_config=self.boards.ssh_config)

    def frame_ms(self, frames: int) -> float:
        """Run the job; return the time per frame."""
        return 1e3 / run(self.prepared(frames)).summary.throughput_fps

    def run_script(self, script: Path, *arguments: str) -> dict[str, float]:
        """Run a script of one's own instead of the job: same boards, cores, network and mpirun.

        It finds the board's package in its working folder, and prints a JSON object on one rank.
        """
        for board in self.boards:
            board.put(script, _SCRIPT)
        boards, mpirun = self.prepared(1).boards, find_mpirun()
        assert boards is not None
        package = below_home(FOLDER, "runs", boards.run, "package")
        start = f'cd {package} && exec {shell_words(sys.executable, _SCRIPT)} "$@"'
        command = launch_command(
            self.plan,
            self.folder,
            mpirun,
            arguments,
            options=boards.mpirun_options(mpirun),
            program=("sh", "-c", start, "script"),
        )
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if ended.returncode:
            raise RuntimeError(f"{script.name} failed:\n{ended.stderr}")
        told: dict[str, float] = json.loads(ended.stdout)
        return told


def build_for(
    boards: Boards,
    place: Path,
    model: Path,
    mapping: Mapping[str, Sequence[str]],
    *,
    sleeps_ms: Sequence[float] = (),
    share_cores: bool = False,
) -> Job:
    """Slice a model for virtual boards.

    Args:
        boards: that are up.
        place: an existing folder to build in.
        model: the model file.
        mapping: keys and their layers.
        sleeps_ms: how long each rank sleeps instead of computing; empty: they compute.
        share_cores: whether ranks may share cores.
    """
    cores = max(os.sched_getaffinity(0)) + 1
    hosts = {board.name: {"host": board.address, "cores": cores} for board in boards}
    (place / "platform.yaml").write_text(json.dumps({"boards": hosts}))
    (place / "mapping.json").write_text(json.dumps(mapping))
    paths = (place / "mapping.json", str(place / "platform.yaml"), place / "out")
    built = build(model, *paths, BuildOptions(share_cores=share_cores))
    plan = let_sleep(built.folder, built.plan, sleeps_ms) if sleeps_ms else built.plan
    return Job(boards, built.folder, plan)
