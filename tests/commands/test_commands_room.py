"""The folders of the commands: their parts, what they import, and how long their functions are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from rankslice.commands.app import COMMANDS, load_command, summary

ROOM = Path(__file__).parents[2] / "commands"


def imported(file: Path) -> set[str]:
    """Return the modules that a file imports, with a dot at the end of each."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {f"{node.module}." for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def test_each_folder_is_a_command_and_has_its_parts() -> None:
    folders = {path.name for path in ROOM.iterdir() if (path / "__init__.py").is_file()}
    assert {*COMMANDS} == folders
    for name in COMMANDS:
        assert (ROOM / name / "cli.py").is_file()
        assert load_command(name).name == name
        assert summary(name)


def test_what_commands_share_uses_no_command() -> None:
    shared = {file.name: imported(file) for file in ROOM.glob("*.py")}
    assert "command.py" in shared
    own = {f"rankslice.commands.{name}." for name in COMMANDS}
    assert {} == {
        file: commands
        for file, names in shared.items()
        if (commands := {n for n in names if any(map(n.startswith, own))})
    }


CODE_LIMIT = 60
"""Lines of code of a function: blank lines, comments and the docstring do not count."""


def lines_of_code(function: ast.FunctionDef, lines: list[str]) -> int:
    docstring = ast.get_docstring(function, clean=False)
    begin = function.body[0].end_lineno if docstring else function.lineno - 1
    code = [line.strip() for line in lines[begin : function.end_lineno]]
    header = function.body[0].lineno - function.lineno if docstring else 0
    return header + sum(bool(line) and not line.startswith("#") for line in code)


def test_no_function_of_a_command_is_long() -> None:
    lengths = {}
    for file in ROOM.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                lengths[f"{file.name}: {node.name}"] = lines_of_code(node, text.splitlines())
    assert max(lengths.values()) > CODE_LIMIT // 2  # they are counted
    assert {} == {name: lines for name, lines in lengths.items() if lines >= CODE_LIMIT}


HEAVY = {"numpy", "onnx", "onnxruntime", "pydantic", "yaml", "jinja2", "rich.progress"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_the_cheapest_commands_load_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom rankslice.commands import main\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    loaded = set(ended.stderr.split())
    assert "rankslice.commands.app" in loaded
    assert set() == HEAVY & loaded
    assert not any(name.endswith(".cli") and "rankslice" in name for name in loaded)
