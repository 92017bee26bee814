"""The command line, run inside the test's process or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from rankslice.commands import main

COMMAND = (sys.executable, "-W", "error", "-c", "from rankslice.commands import main; main()")
"""What runs the command line in a process of its own."""


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str


def rankslice(*arguments: str | Path) -> Ended:
    """Run a command in this process; an exception that is no exit is the test's."""
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    with (
        patch.object(sys, "argv", ["rankslice", *map(str, arguments)]),
        patch.dict(os.environ, COLUMNS="200"),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            signal.signal(signal.SIGTERM, handler)
    assert isinstance(code, int)
    return Ended(code, out.getvalue(), err.getvalue())


def succeed(*arguments: str | Path) -> Ended:
    """Run a command in this process, and fail with its messages if it fails."""
    ended = rankslice(*arguments)
    assert 0 == ended.code, ended.err
    return ended


def printed(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Return what a command prints, typed in a folder; fail with all its output if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, f"{shlex.join(map(str, command))}\n{done.stdout}"
    return done.stdout


def rankslice_process(*arguments: str | Path, timeout: float = 60) -> Ended:
    """Run a command in a process of its own."""
    ended = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
