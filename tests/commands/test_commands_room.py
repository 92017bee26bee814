"""The folders of the commands use each other one way."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from rankslice.commands.app import COMMANDS, load_command, summary

ROOM = Path(__file__).parents[2] / "commands"
OF_A_COMMAND = re.compile(r"rankslice\.commands\.(\w+)\.")


def imported(file: Path) -> set[str]:
    """Return the modules that a file imports, with a dot at the end of each."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {f"{node.module}." for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def used_by(command: str) -> set[str]:
    """Return the other folders that the files of a folder import."""
    modules = {name for file in (ROOM / command).glob("*.py") for name in imported(file)}
    found = {match[1] for name in modules if (match := OF_A_COMMAND.match(name))}
    return found & {*COMMANDS} - {command}


def test_each_folder_is_a_command_and_has_its_parts() -> None:
    folders = {path.name for path in ROOM.iterdir() if (path / "__init__.py").is_file()}
    assert {*COMMANDS} == folders
    for name in COMMANDS:
        assert (ROOM / name / "cli.py").is_file()
        assert load_command(name).name == name
        assert summary(name)


def test_the_folders_of_commands_use_each_other_one_way() -> None:
    uses = {folder: used_by(folder) for folder in COMMANDS}
    assert {*COMMANDS} == {*TopologicalSorter(uses).static_order()}  # raises at a circle


def test_what_commands_share_uses_no_command() -> None:
    shared = {file.name: imported(file) for file in ROOM.glob("*.py")}
    assert "command.py" in shared
    own = {f"rankslice.commands.{name}." for name in COMMANDS}
    assert {} == {
        file: found
        for file, names in shared.items()
        if (found := {n for n in names if any(map(n.startswith, own))})
    }


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
