"""One board of a rack: commands and files, and all that can happen to it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from boards import disks, network
from boards.leftovers import PATIENCE_S, remove_board
from boards.names import BoardNames
from boards.network import Traffic
from boards.system import (
    ENVIRONMENT,
    NAMESPACES,
    BoardsError,
    command,
    first_process_of,
    is_running,
    processes_in,
    status_field,
)

UPTIME_STEP_S = 1000
"""Boards started this long before each other: no two have the same monotonic clock."""


class Board:
    """A board that has a disk and a name, and is on or off."""

    def __init__(
        self,
        names: BoardNames,
        rate_mbit: float,
        disk_mb: int,
        root: Path = disks.OWN_ROOT,
    ) -> None:
        self.names = names
        self.rate_mbit = rate_mbit
        self.disk_mb = disk_mb
        self.root = root

    def __repr__(self) -> str:
        return f"<Board {self.name} at {self.address}>"

    @property
    def name(self) -> str:
        """The host name: ``board1``, ``board2``, ..."""
        return self.names.name

    @property
    def address(self) -> str:
        """The IPv4 address."""
        return self.names.address

    # Commands and files

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        check: bool = True,
        timeout: float = 60,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Return how a command on the board ended; it is started without any network.

        Args:
            arguments: of the command.
            check: raise if the command fails.
            timeout: in seconds; the command is killed then.
            variables: of the environment, besides those of the board's sessions.

        Raises:
            BoardsError: the board is off.
            subprocess.CalledProcessError: the command failed.
            subprocess.TimeoutExpired: it took too long.
        """
        every = {**ENVIRONMENT, **disks.environment(self.names), **(variables or {})}
        settings = [f"{name}={value}" for name, value in every.items()]
        return subprocess.run(
            [*self.entrance(), "env", "-i", *settings, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout,
            env=ENVIRONMENT,
        )

    def entrance(self) -> list[str]:
        """Return what to put before a command of this machine so that it runs on the board."""
        kinds = ("mount", "uts", "ipc", "net", "pid", "time")
        spaces = [f"--{kind}" for kind in kinds]
        # Who runs the command may be killed: then the command has to end, too.
        end_with_parent = ["setpriv", "--pdeathsig=KILL"]
        return ["nsenter", f"--target={self.first_process()}", *spaces, *end_with_parent]

    def ssh(
        self, *arguments: str | Path, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Return how a command on the board ended that was started over ssh."""
        line = shlex.join(map(str, arguments))
        config = self.names.rack.ssh_config
        return subprocess.run(
            ["ssh", "-F", str(config), self.name, line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout,
        )

    def put(self, source: Path, target: str | Path) -> None:
        """Bring a file, or a folder's content, to the board over its cable."""
        self._rsync(contents_of(source), f"{self.name}:{target}")

    def get(self, source: str | Path, target: Path) -> None:
        """Fetch a file or a folder from the board over its cable."""
        self._rsync(f"{self.name}:{source}", str(target))

    def _rsync(self, source: str, target: str) -> None:
        shell = f"ssh -F {shlex.quote(str(self.names.rack.ssh_config))}"
        command(["rsync", "--archive", "--mkpath", "--rsh", shell, source, target], timeout=300)

    # On and off

    def is_on(self) -> bool:
        """Tell whether the board has a running first process."""
        return first_process_of(self.names.namespace) is not None

    def first_process(self) -> int:
        """Return this machine's number of the board's process 1.

        Raises:
            BoardsError: the board is off.
        """
        process = first_process_of(self.names.namespace)
        if process is None:
            raise BoardsError(f"{self.name} is off")
        return process

    def processes(self) -> list[int]:
        """Return this machine's numbers of all processes on the board."""
        return processes_in(self.names.namespace)

    def power_on(self) -> None:
        """Start the board with the disk it has; return once its sshd answers."""
        if self.is_on():
            return
        remove_board(self.names)
        network.lay_cable(self.names, self.rate_mbit)
        self._boot()
        self._await_ssh()

    def cut_power(self) -> None:
        """End the board at once: the cable is dead first, so no peer hears a goodbye."""
        remove_board(self.names)

    def _boot(self) -> None:
        names = self.names
        uptime = UPTIME_STEP_S * names.index
        clocks = [f"--monotonic={uptime}", f"--boottime={uptime}"]
        spaces = ["--uts", "--ipc", "--mount", "--pid", "--time", *clocks, "--fork"]
        network_space = f"--net={NAMESPACES / names.namespace}"
        script = ["/bin/sh", f"{names.disk}/boot.sh", str(names.disk), names.name]
        places = disks.overlay_places(names, self.root)
        boot = ["nsenter", network_space, "unshare", *spaces, *script, *places]
        with (names.disk / "boot.log").open("w") as log:
            subprocess.run(
                ["setsid", "--fork", *boot],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                env=ENVIRONMENT,
            )

    def _await_ssh(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not answers(self.address):
            if time.monotonic() > deadline:
                raise BoardsError(f"{self.name} does not start: {self._boot_messages()}")
            time.sleep(0.01)

    def _boot_messages(self) -> str:
        disk = self.names.disk
        logs = (disk / "boot.log", disk / "upper" / "var" / "log" / "sshd.log")
        return " ".join(log.read_text() for log in logs if log.exists()).strip() or "no message"

    # What can happen to a board

    def stop(self) -> None:
        """Stop all processes; the kernel still answers pings and takes what arrives."""
        while running := [each for each in self.processes() if goes_on(each)]:
            self._signal(running, signal.SIGSTOP)
            time.sleep(0.001)

    def resume(self) -> None:
        """Let all processes go on."""
        # Those on the board first: an nsenter outside stops itself as long as it sees them stopped.
        while stopped := [each for each in self.processes() if is_held(each)]:
            self._signal(sorted(stopped, key=is_outside), signal.SIGCONT)
            time.sleep(0.001)

    def _signal(self, processes: Sequence[int], number: signal.Signals) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def unplug(self) -> None:
        """Pull the cable."""
        network.set_cable(self.names, plugged=False)

    def plug_in(self) -> None:
        """Put the cable back."""
        network.set_cable(self.names, plugged=True)

    def set_rate(self, rate_mbit: float) -> None:
        """Give the cable another rate, in Mbit/s in each direction."""
        self.rate_mbit = rate_mbit
        network.shape(self.names, rate_mbit)

    def traffic(self) -> Traffic:
        """Return the bytes that went over the cable since the board was switched on."""
        return network.traffic(self.names)

    def free_bytes(self) -> int:
        """Return how much the disk can still take."""
        disk = os.statvfs(self.names.disk)
        return disk.f_bavail * disk.f_frsize

    def fill_disk(self, leave_bytes: int = 0) -> None:
        """Leave this much room on the disk; it shrinks, so that no memory is used up."""
        disk = os.statvfs(self.names.disk)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        disks.resize_disk(self.names, used + leave_bytes)

    def empty_disk(self) -> None:
        """Give the disk the size it had before it was filled."""
        disks.resize_disk(self.names, self.disk_mb * 2**20)

    def hide_package(self, package: str) -> None:
        """Remove a Python package, files of its own alone, from the board's first Python."""
        self.run(["python3", "-c", REMOVE_PACKAGE, package])

    def use_python(self, folder: Path) -> None:
        """Put another Python first: ``folder`` is where its ``bin`` is."""
        disks.use_path(self.names, [folder / "bin"])

    def set_clock_ahead(self, seconds: int) -> None:
        """Let programs of later sessions see a wall clock that is wrong by this much.

        Raises:
            BoardsError: Debian's package ``faketime`` is not installed.
        """
        library = faketime_library()
        if library is None:
            raise BoardsError("a wrong clock needs a Debian package: apt-get install faketime")
        variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME": f"{seconds:+d}s",
            # Waits with a deadline use the monotonic clock.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        disks.set_environment(self.names, variables)


REMOVE_PACKAGE = """
import importlib.util, pathlib, shutil, sys
spec = importlib.util.find_spec(sys.argv[1])
if spec is None:
    sys.exit(f"there is no package {sys.argv[1]}")
if spec.submodule_search_locations:
    for folder in spec.submodule_search_locations:
        shutil.rmtree(folder)
else:
    pathlib.Path(spec.origin).unlink()
"""


def contents_of(path: Path) -> str:
    """Return a source for rsync: of a folder, what is in it."""
    return f"{path}/" if path.is_dir() else str(path)


def answers(address: str) -> bool:
    """Tell whether an sshd greets at the address."""
    try:
        with socket.create_connection((address, 22), timeout=0.5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def is_outside(process: int) -> bool:
    """Tell whether a process has entered a board's network but not its PID space."""
    return len(status_field(process, "NSpid").split()) < 2


def is_held(process: int) -> bool:
    """Tell whether a process is stopped, or will be before it does anything more.

    A parent in vfork takes no signal until its child runs the new program, which a child that is
    stopped never does.
    """
    state = status_field(process, "State")[:1]
    if state != "D":
        return state == "T"
    pending = int(status_field(process, "ShdPnd") or "0", 16)
    return bool(pending & 1 << signal.SIGSTOP - 1)


def goes_on(process: int) -> bool:
    """Tell whether a process is on the board and neither held nor at its end."""
    return is_running(process) and not is_held(process) and not is_outside(process)


def faketime_library() -> Path | None:
    """Return the library that shifts a program's wall clock, if it is installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
