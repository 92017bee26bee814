"""Where commands write: the terminal, standard output, and files."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rankslice.framework.files.output_file import write_output
from rankslice.views.terminal import print_line, talk


def end_interrupted(files: Sequence[Path]) -> NoReturn:
    """End a command that was interrupted, and tell which files have what was measured."""
    names = " and ".join(map(str, files))
    kept = (
        f"; the measurements so far are in {names}: run the same command to continue"
        if files
        else ""
    )
    print_line(talk, f"interrupted{kept}")
    sys.exit(128 + signal.SIGINT)


def write_json(file: Path | None, record: dict[str, Any]) -> None:
    """Write what ``--json`` asks for; ``-``: to standard output; ``None``: nowhere."""
    if file is not None:
        write_output(file, json.dumps(record, indent=1) + "\n", "--json")
