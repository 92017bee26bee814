"""What an engine makes of a model, found out in a process of its own.

A file or a driver that makes an engine crash ends that process, not the command.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.errors import signal_name
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.reading.read_json import read_json

_PATIENCE_S = 300


def ask_child(
    module: str,
    engine: str,
    model: Path,
    wanted: object,
    environment: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], str]:
    """Return what a process finds out about a model; and how it crashed after that, if it did.

    Args:
        module: runs in that process, as ``python -m module MODEL WANTED FOUND``: the model's path,
            JSON, and the file to write the answer to, or ``error`` and ``expected`` if there is
            none. The folder of the file is its own.
        engine: its name in messages.
        model: the model's file.
        wanted: what else it must know, for JSON.
        environment: its environment variables; by default those of this process.

    Raises:
        RankSliceError: it has no answer, crashes before it has one, or takes too long.
    """
    with temporary_folder() as folder:
        found, log = folder.path / "found.json", folder.path / "log"
        command = [sys.executable, "-m", module, str(model), json.dumps(wanted), str(found)]
        # A file, for the log of compiled models is read by the process itself.
        with log.open("wb") as stderr:
            try:
                ended = subprocess.run(
                    command,
                    stdout=stderr,
                    stderr=stderr,
                    timeout=_PATIENCE_S,
                    check=False,
                    env=environment,
                )
            except subprocess.TimeoutExpired:
                told = f"{engine} did not finish within {_PATIENCE_S} s"
                raise RankSliceError(Mistake(str(model), told)) from None
        crash = _crash(engine, ended.returncode, log) if ended.returncode else ""
        if not found.is_file():
            raise RankSliceError(Mistake(str(model), crash or f"{engine} told nothing of it"))
        record = read_json(
            found.read_text(errors="replace"), f"{engine}'s process", "expected an answer"
        )
    if not isinstance(record, dict):
        raise RankSliceError(Mistake(str(model), f"{engine} told nothing of it"))
    if "error" in record:
        raise RankSliceError(Mistake(str(model), str(record["error"]), record.get("expected", "")))
    return record, crash


def _crash(engine: str, code: int, log: Path) -> str:
    if code < 0:
        return f"{engine} crashed on it ({signal_name(-code)})"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{engine} failed on it: {lines[-1] if lines else f'it ended with code {code}'}"
