"""The command line, run inside the test's process or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
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
