"""Commands on boards over ssh, and copies with rsync, with the user's own configuration."""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankslice.backend import on_board
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.reach import Reach

__all__ = [
    "PLAIN_PYTHON",
    "BoardShell",
    "Copied",
    "is_this_machine",
    "ssh_complaint",
    "ssh_options",
    "write_ssh_config",
]

CONNECT_TIMEOUT_S = 8
_ANSWER_TIMEOUT_S = 900.0

_OPTIONS = (
    "BatchMode=yes",  # never ask for a password
    f"ConnectTimeout={CONNECT_TIMEOUT_S}",
    "ServerAliveInterval=3",
    "ServerAliveCountMax=4",
    "LogLevel=ERROR",
)

_PROGRAM = Path(on_board.__file__).read_text(encoding="utf-8")

_TOO_OLD = "3.10 or later is needed"
_OLDEST = (3, 8)
"""Pythons before it cannot even read the program, which tells of those that are too old."""

_READ_PROGRAM = (
    f"import sys;v=sys.version_info;v<{_OLDEST} and"
    f" sys.exit('its Python is %d.%d, and {_TOO_OLD}'%v[:2]);"
    "i=sys.stdin.buffer;exec(i.read(int(i.readline())))"
)

_CHOOSE_PYTHON = (
    'p="$HOME/.rankslice/venv/bin/python3"; [ -x "$p" ] || p=python3; '
    f'exec "$p" -c "{_READ_PROGRAM}"'
)

PLAIN_PYTHON = f'exec python3 -c "{_READ_PROGRAM}"'
"""Instead of the Python that jobs run with: the first one of the board, whatever its version."""

_COMPLAINTS = {
    "Permission denied": "ssh is not let in without a password; bring your key there: ssh-copy-id",
    "IDENTIFICATION HAS CHANGED": "its host key is another one than before; if it was set up anew,"
    " forget the old key: ssh-keygen -R HOST",
    "Host key verification failed": "its host key is not known yet; log in once with ssh by hand",
    "Could not resolve": "there is no such host; see `host` in the platform, or your ssh config",
    "No route to host": "it cannot be reached; is it on, and its cable plugged in?",
    "Connection refused": "nothing answers to ssh there; install openssh-server",
    "timed out": "it cannot be reached; is it on, and its cable plugged in?",
    "command not found": "there is no python3; install Python 3.10 or later there",
    "not found": "there is no python3; install Python 3.10 or later there",
}
"""What stands in ssh's own message -> what to tell."""


def is_this_machine(host: str) -> bool:
    """Tell whether a host is the machine that this runs on: it can listen at that address."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            return False
    return True


def ssh_options(config: Path | None) -> list[str]:
    """Return what ssh is called with, besides the host and the command."""
    named = ["-F", str(config)] if config is not None else []
    return [*named, *(f"-o{option}" for option in _OPTIONS)]


def write_ssh_config(path: Path, reaches: Sequence[Reach], config: Path | None) -> Path | None:
    """Return the ssh configuration to use: the given one, or a file that adds accounts to it.

    Args:
        path: where to write a file, if there are accounts to name: mpirun knows none.
        reaches: the boards.
        config: given by the user; ``None``: that of their home folder and of the machine.
    """
    users = [reach for reach in reaches if reach.user]
    if not users:
        return config
    files = [config] if config else [Path.home() / ".ssh" / "config", Path("/etc/ssh/ssh_config")]
    lines = [f"Host {reach.host}\n  User {reach.user}\n" for reach in users]
    lines += ["Match all\n", *(f'  Include "{file.absolute()}"\n' for file in files)]
    path.write_text("".join(lines))
    return path


@dataclass(frozen=True, slots=True)
class Copied:
    """What rsync did."""

    files: int
    """Regular files that were transferred."""
    sent_bytes: int
    """That crossed the connection to the board, rsync's own protocol included."""


@dataclass(frozen=True, slots=True)
class BoardShell:
    """A board, and how to have things done there; this machine is reached without ssh."""

    reach: Reach
    config: Path | None = None

    @property
    def is_here(self) -> bool:
        """Whether the board is this machine."""
        return is_this_machine(self.reach.host)

    def command(self, python: str = _CHOOSE_PYTHON) -> list[str]:
        """Return the command that runs a program read from stdin on the board.

        Args:
            python: what its shell does to start a Python that reads a program.
        """
        if self.is_here:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
            return ["env", f"PATH={path}", "sh", "-c", python]
        shell = f"exec sh -c {shlex.quote(python)}"
        return ["ssh", *ssh_options(self.config), "--", self._target(), shell]

    def _target(self) -> str:
        user = f"{self.reach.user}@" if self.reach.user else ""
        return f"{user}{self.reach.host}"

    def request(self, action: str, **details: Any) -> bytes:
        """Return what :meth:`command` reads: the program for boards, and what it is to do."""
        record = {"action": action, "over_ssh": not self.is_here, "address": self.reach.host}
        call = f"\nmain(json.loads({json.dumps({**record, **details})!r}))\n"
        program = (_PROGRAM + call).encode()
        return b"%d\n%s" % (len(program), program)

    def ask(
        self, action: str, *, timeout_s: float = _ANSWER_TIMEOUT_S, **details: Any
    ) -> dict[str, Any]:
        """Have something done on the board; return its answer.

        Raises:
            RankSliceError: the board cannot be reached, or says why it does not do it.
        """
        try:
            ended = subprocess.run(
                self.command(),
                input=self.request(action, **details),
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise self.mistake(_missing(str(error.filename))) from None
        except subprocess.TimeoutExpired:
            raise self.mistake(f"does not answer within {timeout_s:g} s") from None
        answer = answer_in(ended.stdout.decode(errors="replace"))
        if answer is None:
            errors = ended.stderr.decode(errors="replace")
            raise self.mistake(ssh_complaint(errors, ended.returncode))
        if "error" in answer:
            raise self.mistake(str(answer["error"]))
        return answer

    def mistake(self, found: str) -> RankSliceError:
        """Return an error that names the board."""
        return RankSliceError(Mistake(self.reach.place, found))

    def put(
        self,
        source: Path,
        target: str,
        *,
        files: Sequence[str] = (),
        bases: Sequence[str] = (),
        follow_links: bool = False,
    ) -> Copied:
        """Bring a folder's content, or some of its files, into a folder of the board.

        Args:
            source: a folder, or a file.
            target: absolute path of a folder on the board.
            files: names below ``source``; all if empty.
            bases: absolute paths of folders on the board; files that are like theirs are
                hard-linked, and do not travel.
            follow_links: bring what links lead to; remove in the target what is not in the source.

        Raises:
            RankSliceError: rsync failed; with what it said.
        """
        options = ["--recursive", "--checksum", "--perms", "--executability", "--stats"]
        options += [f"--link-dest={base}" for base in bases]
        options += ["--copy-links", "--delete"] if follow_links else []
        options += ["--from0", "--files-from=-"] if files else []
        names = "\0".join(files).encode()
        told = self._rsync(options, f"{source}/" if source.is_dir() else str(source), target, names)
        return Copied(
            _figure(told, "Number of regular files transferred"), _figure(told, "Total bytes sent")
        )

    def get(self, source: str, target: Path) -> None:
        """Fetch a file of the board; ``source`` is its absolute path.

        Raises:
            RankSliceError: rsync failed; with what it said.
        """
        if self.is_here:
            shutil.copyfile(source, target)
        else:
            self._rsync([], source, str(target), b"", fetch=True)

    def _rsync(
        self, options: Sequence[str], source: str, target: str, names: bytes, *, fetch: bool = False
    ) -> str:
        command = ["rsync", "--protect-args", "--timeout=60", *options]
        far = ""
        if not self.is_here:
            host = f"[{self.reach.host}]" if ":" in self.reach.host else self.reach.host
            far = f"{self.reach.user}@{host}:" if self.reach.user else f"{host}:"
            command += ["--rsh", shlex.join(["ssh", *ssh_options(self.config)])]
        ends = [f"{far}{source}", target] if fetch else [source, f"{far}{target}"]
        try:
            ended = subprocess.run(
                [*command, "--", *ends],
                input=names,
                capture_output=True,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            raise RankSliceError(Mistake("rsync", "not found", _missing("rsync"))) from None
        if ended.returncode:
            errors = ended.stderr.decode(errors="replace")
            # It can end before what the far side says of its error is through.
            is_silent = not fetch and not errors.strip()
            is_full = is_silent and not self._has_room(Path(source), target)
            complaint = _rsync_complaint(errors, ended.returncode)
            raise self.mistake(on_board.DISK_FULL if is_full else complaint)
        return ended.stdout.decode(errors="replace")

    def _has_room(self, source: Path, target: str) -> bool:
        """Whether the disk of a folder of the board holds each file of what is copied there."""
        found = source.rglob("*") if source.is_dir() else [source]
        largest: int = max((path.stat().st_size for path in found if path.is_file()), default=0)
        free: int = self.ask("room", folder=target)["free_bytes"]
        return largest <= free


def answer_in(text: str) -> dict[str, Any] | None:
    """Return the answer of the program for boards among what its shell printed."""
    for line in reversed(text.splitlines()):
        if line.startswith(on_board.MARK):
            answer: dict[str, Any] = json.loads(line.removeprefix(on_board.MARK))
            return answer
    return None


def ssh_complaint(errors: str, code: int) -> str:
    """Return what an ssh that brought no answer means, and what to do.

    Args:
        errors: what it wrote to stderr.
        code: with which it ended.
    """
    last = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
    if last.endswith(_TOO_OLD):
        return last
    told = next((told for part, told in _COMPLAINTS.items() if part in errors), "")
    return f"{told} (ssh said: {last})" if told else f"gives no answer: {last}"


def _rsync_complaint(errors: str, code: int) -> str:
    if "No space left" in errors:
        return on_board.DISK_FULL
    if "rsync: command not found" in errors or "rsync: not found" in errors:
        return "there is no rsync on the board; install it there: apt-get install rsync"
    first = (errors.strip().splitlines() or [f"exit code {code}"])[0]
    return f"rsync failed: {first}"


def _missing(program: str) -> str:
    package = {"ssh": "openssh-client"}.get(program, program)
    return f"{program} is not installed on this machine: apt-get install {package}"


def _figure(text: str, name: str) -> int:
    """Return a number of rsync's statistics."""
    for line in text.splitlines():
        if line.startswith(name):
            return int("".join(letter for letter in line.split(":")[1] if letter.isdigit()))
    return 0
