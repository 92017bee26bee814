"""What boards, hosts, accounts, engines and environment variables can be called.

These names become parts of file names, command lines and module names, so they are narrow.
"""

from __future__ import annotations

import re

from rankslice.framework.wording import quoted

BOARD_RULE = "use up to 64 letters, digits, '.', '_' and '-', a letter or digit first"

_FORMS = {
    "board": r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
    "host": r"[A-Za-z0-9:][A-Za-z0-9._:%-]{0,252}",
    "user": r"[A-Za-z_][A-Za-z0-9._-]{0,31}",
    "engine": r"[a-z][a-z0-9_]{0,31}",
    # A distribution, whose name is handed to pip, or the file of a library.
    "plugin": r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}|[^\n]*/[^\n]+",
    "variable": r"[A-Za-z_][A-Za-z0-9_]{0,127}",
    # Variables that decide which program runs, or that mpirun and the ranks need as they are.
    "taken": r"PATH|HOME|LD_PRELOAD|LD_AUDIT|(PYTHON|OMPI_|PMIX_|PRTE_|MPI4PY|RANKSLICE).*",
}
_TITLES = {
    "board": "the name of a board",
    "host": "a host name or address",
    "user": "the name of an account",
    "engine": "the name of an engine",
    "plugin": "a package or the file of a library",
    "variable": "the name of a variable",
}

PATTERNS = {kind: f"^(?:{form})$" for kind, form in _FORMS.items()}
"""The rules as regular expressions of JSON Schemas; ``taken``: no variable may match it."""


def check_name(kind: str, name: str) -> str:
    """Return a name of a kind of :data:`PATTERNS`, unchanged."""
    if kind == "variable" and re.fullmatch(_FORMS["taken"], name):
        raise ValueError(f"the variable {quoted(name)} cannot be set here")
    if re.fullmatch(_FORMS[kind], name):
        return name
    raise ValueError(f"{quoted(name)} cannot be {_TITLES[kind]}")


def name_complaints(**names: str) -> list[str]:
    """Return the errors of :func:`check_name` for names, by their kinds."""
    complaints = []
    for kind, name in names.items():
        try:
            check_name(kind, name)
        except ValueError as error:
            complaints.append(str(error))
    return complaints
