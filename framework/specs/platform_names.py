"""What boards, hosts, accounts, engines and environment variables can be called.

These names become parts of file names, command lines and module names, so they are narrow.
"""

from __future__ import annotations

import re

from rankslice.framework.wording import quoted

__all__ = [
    "BOARD_RULE",
    "PATTERNS",
    "check_board",
    "check_engine",
    "check_host",
    "check_plugin",
    "check_user",
    "check_variable",
]

BOARD_RULE = "use up to 64 letters, digits, '.', '_' and '-', a letter or digit first"

_BOARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9._:%-]{0,252}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}")
_ENGINE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_PLUGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}|[^\n]*/[^\n]+")
"""A distribution, whose name is handed to pip, or the file of a library."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_TAKEN = re.compile(r"PATH|HOME|LD_PRELOAD|LD_AUDIT|(PYTHON|OMPI_|PMIX_|PRTE_|MPI4PY|RANKSLICE).*")
"""Variables that decide which program runs, or that mpirun and the ranks need as they are."""

PATTERNS = {
    name: f"^(?:{form.pattern})$"
    for name, form in {
        "board": _BOARD,
        "host": _HOST,
        "user": _USER,
        "engine": _ENGINE,
        "plugin": _PLUGIN,
        "variable": _VARIABLE,
        "taken": _TAKEN,
    }.items()
}
"""The same rules as regular expressions of JSON Schemas; ``taken``: no variable may match it."""


def check_board(name: str) -> str:
    """Return the name of a board as it is; raise ValueError if it cannot be one."""
    return _checked(name, _BOARD, "the name of a board")


def check_host(name: str) -> str:
    """Return a host name or address as it is; raise ValueError if it cannot be one."""
    return _checked(name, _HOST, "a host name or address")


def check_user(name: str) -> str:
    """Return the name of an account as it is; raise ValueError if it cannot be one."""
    return _checked(name, _USER, "the name of an account")


def check_engine(name: str) -> str:
    """Return the name of an inference engine as it is; raise ValueError if it cannot be one."""
    return _checked(name, _ENGINE, "the name of an engine")


def check_plugin(name: str) -> str:
    """Return the package or library of a plug-in as it is; raise ValueError if it cannot be one."""
    return _checked(name, _PLUGIN, "a package or the file of a library")


def check_variable(name: str) -> str:
    """Return the name of an environment variable; raise ValueError if it is not to be set."""
    if _TAKEN.fullmatch(name):
        raise ValueError(f"the variable {quoted(name)} cannot be set here")
    return _checked(name, _VARIABLE, "the name of a variable")


def _checked(name: str, form: re.Pattern[str], what: str) -> str:
    if form.fullmatch(name):
        return name
    raise ValueError(f"{quoted(name)} cannot be {what}")
