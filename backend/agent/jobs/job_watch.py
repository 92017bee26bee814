"""The watch of a run on this board: it reports to the launcher, and ends the job with it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import importlib
import os
import shutil
import socket
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

from ..protocol import Answer, Request, send
from .folders import RefusedError, run_of, write
from .prepare_run import FOLDERS, exports
from .runs import DAEMON, end_processes, processes_of

MESSAGES = "messages"
MAX_MESSAGES = 100
MAX_MESSAGE_BYTES = 2000
SILENCE_S = 10
"""Without a line of the launcher."""
POLL_S = 0.1
LOSS_S = 0.2
SESSION_VARIABLE = "RANKSLICE_SESSION"


def watch(request: Request) -> Answer:
    """Forward what ranks say while a job runs; end the job when the launcher ends or is lost.

    Samples of the board and its ranks go to the launcher, too. What each rank did last is kept in
    the folder of the run, unless the job has succeeded. ``events``: the ranks' rings lie in that
    folder, not in their private one.
    """
    run = run_of(request)
    lock = _lock(run)
    folders = contextlib.ExitStack()
    messages, session = _make_own_folders(run, folders)
    send(_report("watching", {}))
    sampling = _runtime_module(run, "figures.sampling")
    folder = run if request["events"] else session
    folders.enter_context(sampling.Sampling(folder, _tell_sample))
    launcher = _Launcher()
    threading.Thread(target=launcher.listen, daemon=True).start()
    threading.Thread(target=_tell_messages, args=(messages,), daemon=True).start()
    watched = _runtime_module(run, "faults.watched_process")
    deaths = watched.Deaths()
    pings, misses = 0, 0
    while not launcher.end.is_set() and misses < SILENCE_S:
        living = processes_of(run.name)
        for process in living:
            deaths.watch(watched.Process(process, watched.process_start(process)))
        with contextlib.suppress(OSError):
            send(_report("alive", living))
        if _wait_for_loss(deaths, launcher.end):
            # Reported at once: the launcher compares which board was the first to lose processes.
            living = processes_of(run.name)
            with contextlib.suppress(OSError):
                send(_report("alive", living))
            launcher.end.wait(LOSS_S)
            continue
        misses = misses + 1 if pings == launcher.pings else 0
        pings = launcher.pings
    last = _report("ended", processes_of(run.name))
    end_processes(run.name)
    if not launcher.has_succeeded:
        _keep_events(session, run)
    folders.close()
    os.utime(lock)
    return last


def _make_own_folders(run: Path, folders: contextlib.ExitStack) -> tuple[socket.socket, Path]:
    """Make the private folders of a run.

    The scripts that start daemon and ranks read the folders' paths from a file.

    Returns:
        The socket to which ranks send messages, and the folder that they share.
    """
    private = _runtime_module(run, "faults.private_folder")
    session = folders.enter_context(private.make_private(private.in_memory()))
    temporary = folders.enter_context(private.make_private())
    variables = {SESSION_VARIABLE: str(session.path), "TMPDIR": str(temporary.path)}
    write(run / FOLDERS, f"{exports(variables)}\n", 0o600)
    messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    # The folder's own path may be too long for the address of a socket.
    messages.bind(f"/proc/self/fd/{session.descriptor}/{MESSAGES}")
    return messages, session.path


def _keep_events(session: Path, run: Path) -> None:
    """Copy what each rank did last into the folder of the run; the launcher may fetch it."""
    name = _runtime_module(run, "figures.events").NAME
    for path in session.glob(f"{name}*"):
        with contextlib.suppress(OSError):
            shutil.copyfile(path, run / path.name, follow_symlinks=False)


def _tell_sample(sample: Any) -> None:
    with contextlib.suppress(OSError):
        send({**_report("sample", {}), "sample": dataclasses.asdict(sample)})


def _runtime_module(run: Path, name: str) -> Any:
    """Return one module of a package's runtime, without importing the others."""
    if "runtime" not in sys.modules:
        runtime = sys.modules["runtime"] = types.ModuleType("runtime")
        runtime.__path__ = [str(run / "package" / "runtime")]
    return importlib.import_module(f"runtime.{name}")


def _wait_for_loss(deaths: Any, end: threading.Event) -> bool:
    """Wait for a second, or until the end; return early, with true, if a process has ended."""
    deadline = time.monotonic() + 1
    while not end.is_set() and time.monotonic() < deadline:
        if deaths.wait(POLL_S):
            return True
    return False


def _lock(run: Path) -> int:
    """Return the locked file that shows others that a run is watched."""
    new = run / f".lock.{os.getpid()}"
    lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        os.link(new, run / "lock")
    except FileExistsError:
        raise RefusedError("this run already exists; start another one") from None
    finally:
        new.unlink()
    return lock


def _report(state: str, processes: dict[int, bytes], message: str = "") -> Answer:
    lines = processes.values()
    return {
        "state": state,
        "message": message,
        "ranks": sum(b"driver.py" in line for line in lines),
        "daemon": any(DAEMON.search(line) for line in lines),
        "sample": None,
    }


class _Launcher:
    """What the launcher has sent: a number a second, which is answered, and how the job ended."""

    def __init__(self) -> None:
        self.pings = 0
        self.end = threading.Event()
        self.has_succeeded = False

    def listen(self) -> None:
        while line := sys.stdin.buffer.readline():
            now_ns = time.monotonic_ns()
            self.pings += 1
            word = line.strip()
            if word in (b"succeeded", b"failed"):
                self.has_succeeded = word == b"succeeded"
                break
            if word.isdigit():
                with contextlib.suppress(OSError):
                    send({"ping": int(word), "clock_ns": now_ns})
        self.end.set()


def _tell_messages(messages: socket.socket) -> None:
    for _ in range(MAX_MESSAGES):
        text = messages.recv(MAX_MESSAGE_BYTES).decode(errors="replace")
        text = "".join(letter for letter in text if letter.isprintable())
        with contextlib.suppress(OSError):
            send(_report("message", {}, text))
