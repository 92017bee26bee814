"""The text of a program for boards, made of the agent's files and the reader of the system."""

from __future__ import annotations

import base64
import json
import zlib
from functools import cache
from pathlib import Path

_BACKEND = Path(__file__).parents[1]


def agent_program(part: str, call: str) -> bytes:
    """Return what a Python on a board reads: the length of a program, a line end, the program.

    Args:
        part: the folder to send besides what all share: ``jobs`` or ``probe``.
        call: Python source that runs at the end. It may call ``main`` of that part.
    """
    program = f"{_loader(part)}\nfrom backend.agent.{part}.main import main\n{call}\n".encode()
    return b"%d\n%s" % (len(program), program)


def agent_modules(part: str) -> dict[str, str]:
    """Return the sources of the modules that a board gets for a part, by their names there."""
    folders = ("agent", f"agent/{part}", "runtime/system")
    files = sorted(file for folder in folders for file in (_BACKEND / folder).glob("*.py"))
    packages = {"backend": "", "backend.runtime": ""}
    return {**packages, **{_module_name(file): _source(file) for file in files}}


@cache
def _loader(part: str) -> str:
    """Return source that lets the modules of a part be imported; they are packed to travel."""
    modules = agent_modules(part)
    loader = modules.pop("backend.agent.text_modules")
    packed = base64.b85encode(zlib.compress(json.dumps(modules).encode(), 9)).decode()
    unpack = f"json.loads(zlib.decompress(base64.b85decode({packed!r})))"
    return f"{loader}\nimport base64, json, zlib\n\ntake({unpack})\n"


def _source(file: Path) -> str:
    if file.name == "__init__.py":  # it only documents
        return ""
    return file.read_text(encoding="utf-8")


def _module_name(file: Path) -> str:
    parts = file.relative_to(_BACKEND.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
