"""Write what ``docs/command-line.md`` says of each command anew: ``python docs/generate_cli.py``.

The text between the page's markers comes from the declarations in ``commands``; all else on the
page is written by hand. A test fails when the page does not say what they say.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo, Context, OptionInfo

from rankslice.commands.app import COMMANDS, load_command, summary

PAGE = Path(__file__).with_name("command-line.md")
_VALUES = {Path: "PATH", str: "TEXT", int: "N", float: "X"}


def generated_page(page: str) -> str:
    """Return the page with the text between its markers made anew.

    Raises:
        ValueError: the page lacks a command's markers, or has them several times.
    """
    for command in COMMANDS:
        begin, end = f"<!-- {command} -->\n", f"<!-- end of {command} -->\n"
        parts = re.split(f"(?s){re.escape(begin)}.*?{re.escape(end)}", page)
        if len(parts) != 2:
            raise ValueError(f"{PAGE.name} has {len(parts) - 1} pairs of markers for {command}")
        page = f"{parts[0]}{begin}\n{_description(command)}\n{end}{parts[1]}"
    return page


def _description(command: str) -> str:
    """Return usage, summary and a table of a command's arguments and options."""
    usage = [f"rankslice {command}"]
    rows = ["| option | meaning |", "|---|---|"]
    function = inspect.unwrap(load_command(command).callback)
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if hints[name] is Context:
            continue
        kind, info = typing.get_args(hints[name])
        if isinstance(info, ArgumentInfo):
            usage.append(info.metavar or name.upper())
            rows.append(f"| `{usage[-1]}` | {info.help} |")
        elif not info.hidden:
            rows.append(f"| {_option(name, kind, info)} | {_meaning(kind, info, parameter)} |")
    return "\n".join(
        ["```text", f"{' '.join(usage)} [OPTIONS]", "```", "", summary(command), "", *rows, ""]
    )


def _option(name: str, kind: Any, info: OptionInfo) -> str:
    # Inside Annotated the first declaration stands where a default would.
    declared = [text for text in (info.default, *(info.param_decls or ())) if str(text)[:2] == "--"]
    flag = declared[0] if declared else f"--{name.replace('_', '-')}"
    value = (info.metavar or "").replace("|", "\\|") or _value(_plain(kind))
    return f"`{flag} {value}`" if value else f"`{flag}`"


def _meaning(kind: Any, info: OptionInfo, parameter: inspect.Parameter) -> str:
    notes = []
    if parameter.default is inspect.Parameter.empty:
        notes.append("Required.")
    elif parameter.default is not False and parameter.default not in (None, ""):
        default = parameter.default
        notes.append(f"Default: `{default.value if isinstance(default, enum.Enum) else default}`.")
    if typing.get_origin(_without_none(kind)) is list:
        notes.append("May be given several times.")
    return " ".join([str(info.help), *notes]).replace("|", "\\|")


def _without_none(kind: Any) -> Any:
    """Return ``list[str]`` for ``list[str] | None``."""
    kinds = [inner for inner in typing.get_args(kind) if inner is not type(None)]
    return kinds[0] if type(None) in typing.get_args(kind) else kind


def _plain(kind: Any) -> Any:
    """Return ``str`` for ``list[str] | None``."""
    kind = _without_none(kind)
    return typing.get_args(kind)[0] if typing.get_origin(kind) is list else kind


def _value(kind: Any) -> str:
    """Return how the value of an option is written; empty for a switch."""
    if issubclass(kind, enum.Enum):
        return "\\|".join(choice.value for choice in kind)
    return _VALUES.get(kind, "")


if __name__ == "__main__":
    PAGE.write_text(generated_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
