"""The text of a program for boards, made of the files of :mod:`rankslice.backend.boards.agent`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["agent_program"]

_FOLDER = Path(__file__).with_name("agent")


def agent_program(part: str, call: str) -> bytes:
    """Return what a Python on a board reads: the length of a program, a line end, the program.

    Args:
        part: the folder to send besides what all share: ``jobs`` or ``probe``.
        call: Python source that runs at the end. It may call ``main`` of that part.
    """
    program = f"{_modules(part)}\nfrom agent.{part}.main import main\n{call}\n".encode()
    return b"%d\n%s" % (len(program), program)


@cache
def _modules(part: str) -> str:
    """Return source that lets the modules of a part be imported as ``agent.<part>.<module>``."""
    files = [*_FOLDER.glob("*.py"), *(_FOLDER / part).glob("*.py")]
    texts = {_module_name(file): file.read_text(encoding="utf-8") for file in sorted(files)}
    return f"{texts.pop('agent.load')}\n\ntake({texts!r})\n"


def _module_name(file: Path) -> str:
    parts = file.relative_to(_FOLDER.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
