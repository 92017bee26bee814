"""Programs on boards over ssh, and copies with rsync; both use the user's own configuration.

A board gets the agent's files and the runtime's reader of the system as one text.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rankslice.backend.agent.jobs.folders import DISK_FULL
from rankslice.backend.agent.system import shell_words
from rankslice.backend.boards.answers import Fetched, Room
from rankslice.backend.boards.login import Login, is_this_machine
from rankslice.backend.boards.remote_process import TOO_OLD, RemoteProcess
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import home_folder

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

CONNECT_TIMEOUT_S = 8
_ANSWER_TIMEOUT_S = 900.0
_END_S = 2.0
_MAX_AT_ONCE = 32
"""Boards that are asked at a time, each by a thread of its own."""

_OPTIONS = (
    "BatchMode=yes",  # never ask for a password
    f"ConnectTimeout={CONNECT_TIMEOUT_S}",
    "ServerAliveInterval=3",
    "ServerAliveCountMax=4",
    "LogLevel=ERROR",
)

FOLDER = ".rankslice"
"""Folder of RankSlice on boards, in the home folder of the account."""

_OLDEST = (3, 8)
"""Older Pythons cannot parse the program that checks the version."""

_READ_PROGRAM = (
    f"import sys;v=sys.version_info;v<{_OLDEST} and"
    f" sys.exit('its Python is %d.%d, and {TOO_OLD}'%v[:2]);"
    "i=sys.stdin.buffer;exec(i.read(int(i.readline())))"
)


def below_home(*parts: str) -> str:
    """Return a path below the account's home folder as one word of the board's shell."""
    return f"~/{shell_words('/'.join(parts))}"


_CHOOSE_PYTHON = (
    f'p={below_home(FOLDER, "venv", "bin", "python3")}; [ -x "$p" ] || p=python3; '
    f'exec "$p" {shell_words("-c", _READ_PROGRAM)}'
)

PLAIN_PYTHON = shell_words("exec", "python3", "-c", _READ_PROGRAM)
"""Starts the board's own Python, of any version, instead of the one that runs jobs."""


_BACKEND = Path(__file__).parents[1]


def agent_program(part: str, call: str) -> bytes:
    """Return the stdin of a Python on a board: the length of a program, a line end, the program.

    Args:
        part: the folder to send besides what all share: ``jobs`` or ``probe``.
        call: Python source that runs at the end. It may call ``main`` of that part.
    """
    program = f"{_loader(part)}\nfrom backend.agent.{part}.main import main\n{call}\n".encode()
    return b"%d\n%s" % (len(program), program)


@cache
def _loader(part: str) -> str:
    """Return source that lets the modules of a part be imported, from a file in memory."""
    packed = base64.b85encode(zlib.compress(agent_modules(part), 9)).decode()
    return (
        "import base64, os, sys, zlib\n"
        "file = os.memfd_create('agent')\n"
        f"os.write(file, zlib.decompress(base64.b85decode({packed!r})))\n"
        "sys.path.insert(0, f'/proc/self/fd/{file}')\n"
    )


def agent_modules(part: str) -> bytes:
    """Return a zip file with the modules that a board gets for a part."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for package in ("backend", "backend/runtime"):
            archive.writestr(f"{package}/__init__.py", "")
        for folder in ("agent", f"agent/{part}", "runtime/system"):
            for file in sorted((_BACKEND / folder).glob("*.py")):
                is_package = file.name == "__init__.py"  # it only documents
                name = file.relative_to(_BACKEND.parent).as_posix()
                archive.writestr(name, b"" if is_package else file.read_bytes())
    return content.getvalue()


def ssh_options(config: Path | None) -> list[str]:
    named = ["-F", str(config)] if config is not None else []
    return [*named, *(f"-o{option}" for option in _OPTIONS)]


def write_ssh_config(path: Path, logins: Sequence[Login], config: Path | None) -> Path | None:
    """Return the ssh configuration to use: the given one, or a new file that adds accounts to it.

    The file is for mpirun, which cannot name accounts.

    Args:
        path: of the new file; it is written if some board has an account.
        config: given by the user; ``None``: those of the home folder and of the system.
    """
    users = [login for login in logins if login.user]
    if not users:
        return config
    files = [config] if config else [home_folder() / ".ssh" / "config", Path("/etc/ssh/ssh_config")]
    lines = [f"Host {login.host}\n  User {login.user}\n" for login in users]
    lines += ["Match all\n", *(f'  Include "{file.absolute()}"\n' for file in files)]
    path.write_text("".join(lines))
    return path


@dataclass(frozen=True, slots=True)
class Copied:
    """What rsync has copied."""

    files: int
    """Number of regular files transferred."""
    sent_bytes: int
    """Bytes sent to the board, rsync's own protocol included."""


@dataclass(frozen=True, slots=True)
class BoardShell:
    """Runs programs on a board; this machine is reached without ssh."""

    login: Login
    config: Path | None = None

    @property
    def is_here(self) -> bool:
        return is_this_machine(self.login.host)

    def command(self, python: str = _CHOOSE_PYTHON) -> list[str]:
        """Return the command that runs a program from stdin on the board.

        Args:
            python: shell text that starts a Python which reads a program.
        """
        if self.is_here:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
            return ["env", f"PATH={path}", "sh", "-c", python]
        line = shell_words("exec", "sh", "-c", python)
        user = f"{self.login.user}@" if self.login.user else ""
        return ["ssh", *ssh_options(self.config), "--", f"{user}{self.login.host}", line]

    def start(self, action: str, *, outlives_ctrl_c: bool = True, **details: Any) -> RemoteProcess:
        """Have the agent begin to do something; see :class:`RemoteProcess`.

        Raises:
            RankSliceError: this machine lacks ssh.
        """
        place = {"over_ssh": not self.is_here, "address": self.login.host}
        request = json.dumps({"action": action, **place, **details})
        process = RemoteProcess(
            self.command(), self.login.full_name, outlives_ctrl_c=outlives_ctrl_c
        )
        process.write(agent_program("jobs", f"import json\nmain(json.loads({request!r}))"))
        return process

    def ask(
        self, kind: type[T], action: str, *, timeout_s: float = _ANSWER_TIMEOUT_S, **details: Any
    ) -> T:
        """Have the agent do something; return its answer.

        Raises:
            RankSliceError: the board cannot be reached, or refuses.
        """
        with self.start(action, outlives_ctrl_c=False, **details) as process:
            return process.ask(kind, timeout_s)

    def mistake(self, found: str) -> RankSliceError:
        return RankSliceError(Mistake(self.login.full_name, found))

    def put(
        self,
        source: Path,
        target: str,
        *,
        files: Sequence[str] = (),
        bases: Sequence[str] = (),
        follow_links: bool = False,
    ) -> Copied:
        """Copy a folder's content, or some of its files, into a folder of the board.

        Args:
            target: a folder below :data:`FOLDER` on the board.
            files: names below ``source``; all if empty.
            bases: further folders there; files that equal theirs are hard-linked and do not travel.
            follow_links: copy the files that links point to.

        Raises:
            RankSliceError: rsync failed; with its message.
        """
        options = ["--recursive", "--checksum", "--perms", "--executability", "--stats"]
        # Ranks in turn have the same sub-model: it travels once.
        options += ["--hard-links"]
        # Debian 12's rsync (3.2.7-1+deb12u6) fails to send parts of a file beside --link-dest.
        options += ["--whole-file"]
        up = "../" * len(Path(target).parts)
        options += [f"--link-dest={up}{base}" for base in bases]
        options += ["--copy-links"] if follow_links else []
        options += ["--from0", "--files-from=-"] if files else []
        names = "\0".join(files).encode()
        statistics = self._rsync(options, source, target, names)
        return Copied(
            _figure(statistics, "Number of regular files transferred"),
            _figure(statistics, "Total bytes sent"),
        )

    def get(self, run: str, name: str, target: Path, *, max_bytes: int) -> None:
        """Fetch a file of a run, which the board then removes.

        Args:
            target: to write; after a failure it may be incomplete.
            max_bytes: larger files are refused.

        Raises:
            RankSliceError: the board cannot be reached, or the file is missing or too large.
        """
        with self.start("fetch", run=run, name=name) as process:
            nbytes = process.ask(Fetched, _ANSWER_TIMEOUT_S).nbytes
            if nbytes > max_bytes:
                limit = f"this job writes at most {max_bytes}"
                raise self.mistake(f"{name} has {nbytes} bytes there, and {limit}")
            try:
                with target.open("wb") as file:
                    process.copy(file, nbytes)
            except OSError as error:
                raise RankSliceError(Mistake(str(target), str(error.strerror))) from None
            process.write(b"fetched\n")
            process.close(_END_S)

    def _rsync(self, options: Sequence[str], source: Path, target: str, names: bytes) -> str:
        command = ["rsync", "--protect-args", "--timeout=60", *options]
        end = f"{FOLDER}/{target}"
        if self.is_here:
            end = str(home_folder() / end)
        else:
            host = f"[{self.login.host}]" if ":" in self.login.host else self.login.host
            end = f"{self.login.user}@{host}:{end}" if self.login.user else f"{host}:{end}"
            command += ["--rsh", shell_words("ssh", *ssh_options(self.config))]
        command += ["--", f"{source}/", end]
        variables = {**os.environ, "LC_ALL": "C"}
        with RemoteProcess(
            command, self.login.full_name, environment=variables, outlives_ctrl_c=False
        ) as process:
            process.write(names)
            process.end_input()
            printed, code = process.rest()
            errors = process.last_words()
        if code:
            # rsync may end before the board's error message has arrived.
            is_full = not errors.strip() and not self._has_room(source, target)
            complaint = _rsync_complaint(errors, code)
            raise self.mistake(DISK_FULL if is_full else complaint)
        return printed

    def _has_room(self, source: Path, target: str) -> bool:
        found = (path for path in source.rglob("*") if path.is_file())
        largest = max((path.stat().st_size for path in found), default=0)
        return largest <= self.ask(Room, "room", folder=target).free_bytes


def _rsync_complaint(errors: str, code: int) -> str:
    if "No space left" in errors:
        return DISK_FULL
    if "rsync: command not found" in errors or "rsync: not found" in errors:
        return "there is no rsync on the board; install it there: apt-get install rsync"
    first = (errors.strip().splitlines() or [f"exit code {code}"])[0]
    return f"rsync failed: {first}"


def _figure(text: str, name: str) -> int:
    match = re.search(rf"(?m)^{name}:\s*([0-9,.]{{1,24}})", text)
    return int(re.sub(r"\D", "", match[1]) or "0") if match else 0


def outcomes(do: Callable[[A], B], items: Sequence[A]) -> list[B | RankSliceError]:
    """Return for each item what a function returns, or the error that it raises."""

    def outcome(item: A) -> B | RankSliceError:
        try:
            return do(item)
        except RankSliceError as error:
            return error

    pool = ThreadPoolExecutor(_MAX_AT_ONCE)
    try:
        results = list(pool.map(outcome, items))
    except BaseException:
        # On Ctrl-C the caller closes its connections; it does not wait for answers.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return results


def on_all(do: Callable[[A], B], items: Sequence[A]) -> tuple[B, ...]:
    """Return for each item what a function returns.

    Raises:
        RankSliceError: it failed for some items; with the errors of all of them, equal ones once.
    """
    results = outcomes(do, items)
    errors = [result for result in results if isinstance(result, RankSliceError)]
    if errors:
        mistakes = (mistake for error in errors for mistake in error.mistakes)
        raise RankSliceError(*dict.fromkeys(mistakes))
    return tuple(result for result in results if not isinstance(result, RankSliceError))
