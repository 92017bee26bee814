"""Jobs on virtual boards: built, deployed and run as a user does it, by the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import onnx
from command_line import COMMAND, Ended, rankslice
from profiled_layers import kind_of, profile_of
from real_jobs import DIGITS, chain, let_ranks_sleep

from boards import Board, Boards
from rankslice.backend.package import write_packages
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.plan import plan_from_json
from rankslice.session.building.build import BuildOptions, build

START_S = 120
MAPPING = {"board1_cpu0": ["conv1..pool1"], "board2_cpu0": ["conv3..softmax"]}
"""Of the digit classifier."""


def build_for(
    boards: Boards,
    folder: Path,
    model: Path,
    mapping: dict[str, Sequence[str]],
    *,
    kind: Mapping[str, str] | None = None,
    **settings: object,
) -> Path:
    """Return a build folder for boards, whose hosts are their addresses."""
    hosts = {board.name: {"host": board.address, "cores": 2, **(kind or {})} for board in boards}
    return build_on(hosts, folder, model, mapping, **settings)


def build_on(
    hosts: Mapping[str, Mapping[str, object]],
    folder: Path,
    model: Path,
    mapping: Mapping[str, Sequence[str]],
    **settings: object,
) -> Path:
    """Return a build folder for a platform, given as what its file says of each board."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mapping.json").write_text(json.dumps(mapping))
    (folder / "platform.yaml").write_text(json.dumps({"boards": hosts}))
    paths = (folder / "mapping.json", str(folder / "platform.yaml"), folder / "out")
    return build(model, *paths, BuildOptions(force=True, **settings)).folder  # type: ignore[arg-type]


def deployed_digits(boards: Boards, folder: Path) -> Path:
    """Return a build folder of the digit classifier, whose packages two boards have."""
    out = build_for(boards, folder, DIGITS, MAPPING)
    assert 0 == deploy(boards, out).code
    return out


def chain_for(boards: Boards, folder: Path, width: int = 16) -> Path:
    """Return a build folder of a chain, a layer and a rank a board."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(chain(len(boards), width), folder / "model.onnx")
    mapping = {f"{board.name}_cpu0": [f"L{rank}"] for rank, board in enumerate(boards)}
    return build_for(boards, folder, folder / "model.onnx", mapping)


def survivable_chain(boards: Boards, folder: Path) -> Path:
    """Return a build folder of a chain, two layers a board, that may lose any board.

    Its hosts are names that ssh's configuration alone knows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    layers = 2 * len(boards)
    onnx.save(chain(layers), folder / "model.onnx")
    return survivable(boards, folder, layers)


def survivable(boards: Boards, folder: Path, layers: int) -> Path:
    """Return a build folder of a model of layers ``L0``, ``L1``, ..., as many a board."""
    keys, each = [f"{board.name}_cpu0" for board in boards], layers // len(boards)
    profile = profile_of(folder / "model.onnx", layers, kind_of(layers, (10.0,), *keys))
    (folder / "profile.json").write_text(profile)
    mapping = {key: [f"L{each * n}..L{each * (n + 1) - 1}"] for n, key in enumerate(keys)}
    given = {"survive": ("all",), "profile": folder / "profile.json"}
    hosts = {board.name: {"host": board.name, "cores": 2} for board in boards}
    return build_on(hosts, folder, folder / "model.onnx", mapping, **given)


def sleeping_chain(boards: Boards, folder: Path, sleep_ms: float, width: int = 16) -> Path:
    """Return a build folder of a chain, a layer and a rank a board, that sleep."""
    return asleep(chain_for(boards, folder, width), sleep_ms)


def chain_in_turn(boards: Boards, folder: Path, width: int = 16) -> Path:
    """Return a build folder of three layers, the second of which two boards have in turn.

    The first board has the source, the second one rank 1, the third one ranks 2 and 3, the sink.
    """
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(chain(3, width), folder / "model.onnx")
    first, second, third = (board.name for board in boards)
    mapping = {
        f"{first}_cpu0": ["L0"],
        f"{second}_cpu0|{third}_cpu0": ["L1"],
        f"{third}_cpu1": ["L2"],
    }
    return build_for(boards, folder, folder / "model.onnx", mapping)


def asleep(
    out: Path,
    sleep_ms: float,
    *,
    engine: str = "",
    options: dict[int, dict[str, str]] | None = None,
) -> Path:
    """Change a build folder and its packages so that its ranks sleep; return it.

    ``engine`` and ``options`` are those of :func:`real_jobs.let_ranks_sleep`.
    """
    let_ranks_sleep(out, sleep_ms, engine=engine, options=options)
    shutil.rmtree(out / "packages")
    write_packages(out, plan_from_json((out / "plan.json").read_text()))
    return out


def deploy(boards: Boards, out: Path, *arguments: str) -> Ended:
    """Return how ``rankslice deploy`` ended."""
    return rankslice("deploy", out, "--ssh-config", boards.ssh_config, *arguments)


def run(boards: Boards, out: Path, *arguments: str | Path) -> Ended:
    """Return how ``rankslice run`` ended."""
    return rankslice("run", out, "--ssh-config", boards.ssh_config, *arguments)


def home(board: Board) -> Path:
    """Return where this machine sees what ``~/.rankslice`` on a board is."""
    return board.names.disk / "upper" / "root" / ".rankslice"


def package(board: Board) -> Path:
    """Return where this machine sees the package that a board was given last."""
    return max((home(board) / "packages").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def submodel(board: Board) -> Path:
    """Return where this machine sees the first sub-model of that package."""
    return min((package(board) / "submodels").iterdir())


def damage(board: Board, path: Path) -> None:
    """Change one byte of a file on a board, in place, with a time that tells nothing of it."""
    board.run(["python3", "-c", CHANGE_A_BYTE, board_path(path)])


def board_path(path: Path) -> str:
    """Return how a board names a file that this machine sees on its disk."""
    return "/" + str(path).split("/upper/", 1)[1]


CHANGE_A_BYTE = """
import os, sys
times = os.stat(sys.argv[1]).st_atime_ns, os.stat(sys.argv[1]).st_mtime_ns
with open(sys.argv[1], "r+b") as file:
    file.seek(50)
    byte = file.read(1)[0]
    file.seek(50)
    file.write(bytes([byte ^ 1]))
os.utime(sys.argv[1], ns=times)
"""


def set_version(board: Board, name: str, version: str) -> None:
    """Let a board's Python believe that it has another version of a package."""
    board.run(["python3", "-c", SET_VERSION, name, version])


SET_VERSION = """
import importlib.metadata, re, sys
from pathlib import Path
name, version = sys.argv[1:]
path = Path(importlib.metadata.distribution(name)._path) / "METADATA"
path.write_text(re.sub(r"(?m)^Version: .*", f"Version: {version}", path.read_text(), count=1))
"""


def _epoch(rank: int) -> int:
    """Return the number of a rank's job among those that have the same frames."""
    variables = Path(f"/proc/{rank}/environ").read_bytes().split(b"\0")
    (told,) = [each for each in variables if each.startswith(b"RANKSLICE_KEEPER=")] or [b"={}"]
    return int(json.loads(told.partition(b"=")[2]).get("epoch", 0))


def signal_rank(board: Board, number: signal.Signals, *, of: int | None = None) -> None:
    """Send a signal to the rank on a board; to that of the first job, if others wait beside.

    ``of`` is the number of another job.
    """
    ranks = _ranks_on(board)
    os.kill(ranks[min(ranks) if of is None else of], number)


def epochs_on(board: Board) -> list[int]:
    """Return the numbers of the jobs with the same frames that have a rank on a board."""
    return sorted(_ranks_on(board))


def _ranks_on(board: Board) -> dict[int, int]:
    """Return the ranks on a board, by the number of their job."""
    found = {}
    for process in board.processes():
        with suppress(OSError, ValueError):  # it has ended
            if b"driver.py\0--input" in Path(f"/proc/{process}/cmdline").read_bytes():
                found[_epoch(process)] = process
    return found


def of_job(board: Board) -> list[str]:
    """Return the command lines of a job's processes on a board."""
    found = []
    for process in board.processes():
        try:
            line = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX" and any(
            name in line for name in ("driver.py", "watchdog.py", "rted ")
        ):
            found.append(line)
    return found


def forget_results(board: Board) -> None:
    """Remove the results of earlier runs from a board, which say nothing of the next one."""
    board.run(["sh", "-c", "rm -f /root/.rankslice/runs/*/results.bin"])


class Launcher:
    """A running ``rankslice run``."""

    def __init__(self, boards: Boards, out: Path, *arguments: str | Path) -> None:
        self.out = out
        self.boards = boards
        self._errors = out.with_suffix(".err").open("w+b")
        self.process = subprocess.Popen(
            [*COMMAND, "run", out, "--ssh-config", boards.ssh_config, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, "COLUMNS": "200"},
        )

    def wait_for_frames(self, sink: Board, count: int = 20) -> int:
        """Return how many frames have come out on the sink's board, once there are some."""
        deadline = time.monotonic() + START_S
        while (completed := self.completed(sink)) < count:
            assert self.process.poll() is None, self.errors()
            assert time.monotonic() < deadline, "the job has not started"
            time.sleep(0.05)
        return completed

    def completed(self, sink: Board) -> int:
        """Return how many frames have come out on the sink's board."""
        for path in (home(sink) / "runs").glob("*/results.bin"):
            try:
                return len(read_results(path))
            except JobError:
                continue
        return 0

    def errors(self) -> str:
        """Return what was written to stderr."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def close(self) -> None:
        """End the launcher, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._errors.close()
