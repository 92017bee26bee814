"""Modules that run an engine in a process of their own: a file that makes it crash does no harm."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TIMEOUT_S = 300


def answer_of(
    module: str,
    arguments: Sequence[str],
    folder: Path,
    engine: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[Any, str]:
    """Return what a module answers with :func:`write_answer`, and how its process failed.

    The answer is ``None`` if there is none; a process may crash after it.

    Args:
        arguments: of its command line; the file for the answer follows.
        folder: for files in between; the process's output is ``log`` there.
        engine: its name in messages.
    """
    file, log = folder / "answer.json", folder / "log"
    command = [sys.executable, "-m", module, *arguments, str(file)]
    with log.open("wb") as output:
        try:
            code = subprocess.run(
                command, stdout=output, stderr=output, timeout=_TIMEOUT_S, env=environment
            ).returncode
        except subprocess.TimeoutExpired:
            return None, f"{engine} did not finish within {_TIMEOUT_S} s"
    failure = ""
    if code < 0:
        failure = f"{engine} crashed on it ({signal.Signals(-code).name})"
    elif code:
        lines = log.read_text(errors="replace").strip().splitlines()
        failure = f"{engine} failed on it: {lines[-1] if lines else f'it ended with code {code}'}"
    if not file.is_file():
        return None, failure or f"{engine}'s process gave no answer"
    return json.loads(file.read_text()), failure


def write_answer(file: str | Path, answer: Any) -> None:
    whole = Path(file).with_suffix(".whole")
    whole.write_text(json.dumps(answer))
    whole.replace(file)
