"""The command line: each command is a thin shell over one library call."""

from __future__ import annotations

import io
import signal
import sys
from typing import NoReturn

from rich.markup import escape

from rankslice.framework.errors import RankSliceError

# isort: off
# Each adds its commands to the program; in the order in which the help names them.
from rankslice.framework.cli import slicing  # noqa: F401
from rankslice.framework.cli import running
from rankslice.framework.cli import measuring  # noqa: F401
from rankslice.framework.cli import exploring  # noqa: F401
from rankslice.framework.cli import demo  # noqa: F401

# isort: on
from rankslice.framework.cli.app import app
from rankslice.framework.cli.output import talk

__all__ = ["app", "main"]


def main() -> NoReturn:
    """Run the command line; exit 0 on success, 1 if input or run failed, 2 on misuse."""
    # So that a terminated build removes what it has half written.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # A name that the terminal cannot show is no reason to fail.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(running.with_verify_value(sys.argv[1:]))
    except RankSliceError as error:
        for mistake in error.mistakes:
            talk.print(f"[red]error:[/red] {escape(str(mistake))}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        talk.print("interrupted")
        sys.exit(1)
    sys.exit(0)
