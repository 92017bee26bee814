"""The program that boards get: Python 3.8, its standard library, and one part alone."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rankslice.backend.agent
from rankslice.backend.boards.ssh import agent_modules, agent_program

BACKEND = Path(rankslice.backend.agent.__file__).parents[1]
SYSTEM = BACKEND / "runtime" / "system"
FILES = sorted([*(BACKEND / "agent").rglob("*.py"), *SYSTEM.glob("*.py")])


def imported(file: Path) -> set[str]:
    """Return what a file imports, of its own package by the path from there."""
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            leaves = node.level >= len(file.relative_to(BACKEND).parts)
            assert not leaves or (node.module or "").startswith("runtime.system."), file
            names |= {"." * node.level + (node.module or "")}
        elif isinstance(node, ast.Import):
            names |= {name.name.partition(".")[0] for name in node.names}
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(BACKEND)))
def test_each_file_is_python_3_8_and_needs_the_standard_library_alone(file: Path) -> None:
    others = {name for name in imported(file) if not name.startswith(".")}
    assert {name.partition(".")[0] for name in others} <= sys.stdlib_module_names


@pytest.mark.parametrize(("part", "other"), [("jobs", "probe"), ("probe", "jobs")])
def test_a_part_is_sent_with_what_both_share_and_without_the_other(part: str, other: str) -> None:
    files = zipfile.ZipFile(io.BytesIO(agent_modules(part))).namelist()
    shared = {"backend/agent/protocol.py", "backend/runtime/system/files.py"}
    assert shared | {f"backend/agent/{part}/main.py"} <= {*files}
    assert not any(name.startswith(f"backend/agent/{other}") for name in files)


def test_a_program_begins_with_its_length_and_is_small() -> None:
    length, _, program = agent_program("jobs", "main()").partition(b"\n")
    assert int(length) == len(program) < 28_000


def test_the_program_for_jobs_runs_without_rankslice_and_writes_no_module(tmp_path: Path) -> None:
    request = {"action": "room", "folder": ""}
    (tmp_path / ".rankslice").mkdir()
    call = f"import json\nmain(json.loads({json.dumps(request)!r}))"
    program = agent_program("jobs", call).partition(b"\n")[2]
    ended = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", "import sys; exec(sys.stdin.read())"],
        input=program,
        capture_output=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
        cwd=tmp_path,
    )
    mark, _, answer = ended.stdout.decode().partition(" ")
    assert "rankslice-answer" == mark
    assert json.loads(answer)["free_bytes"] > 0
    assert [tmp_path / ".rankslice"] == [*tmp_path.rglob("*")]
