"""The unit and the container file of docs/service/, as far as they can be tried without either."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rankslice.commands.app import load_command

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "docs" / "service" / "rankslice.service"
CONTAINER = ROOT / "docs" / "service" / "Containerfile"
PROGRAM = "/opt/rankslice/bin/rankslice"


def joined_lines(path: Path) -> list[str]:
    return re.sub(r"\\\n\s*", "", path.read_text(encoding="utf-8")).splitlines()


def instructions(name: str) -> list[str]:
    """Return what follows an instruction of the container file, each time."""
    return [line[len(name) :].strip() for line in joined_lines(CONTAINER) if line.startswith(name)]


def unit_command() -> list[str]:
    (line,) = (line for line in joined_lines(UNIT) if line.startswith("ExecStart="))
    return shlex.split(line.removeprefix("ExecStart="))


@pytest.mark.parametrize("file", [UNIT, CONTAINER], ids=lambda file: file.name)
def test_the_page_shows_the_files(file: Path) -> None:
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    assert f"```text\n{file.read_text(encoding='utf-8')}```\n" in page


def test_the_commands_have_options_that_serve_knows() -> None:
    known = {option.flag for option in load_command("serve").options}
    for command in (unit_command(), json.loads(instructions("ENTRYPOINT")[0])):
        assert "serve" in command[:2]
        assert {word for word in command if word.startswith("--")} <= known


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(PROGRAM, sys.executable))
    ended = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (0, "") == (ended.returncode, ended.stdout + ended.stderr)


@pytest.mark.ci
def test_the_container_file_installs_the_wheel_and_its_command_and_check_run(
    tmp_path: Path,
) -> None:
    """Other packages are those of this environment."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    others = tmp_path / "others"
    others.mkdir()
    for package in next(Path(sys.prefix).glob("lib/python*/site-packages")).iterdir():
        if "rankslice" not in package.name:
            (others / package.name).symlink_to(package)
    opt = tmp_path / "opt"
    paths = os.pathsep.join(
        [str(opt / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    environment = {**os.environ, "PYTHONPATH": str(others), "PATH": paths}

    (line,) = (line for line in instructions("RUN") if "pip install" in line)
    line = line.replace("/opt/rankslice", str(opt)).replace("/tmp/", f"{tmp_path}/")
    subprocess.run(["bash", "-ec", line], check=True, env=environment, capture_output=True)

    entry = [*json.loads(instructions("ENTRYPOINT")[0]), str(tmp_path / "none")]
    ended = subprocess.run(entry, capture_output=True, text=True, check=False, env=environment)
    assert 1 == ended.returncode
    *_, event = map(json.loads, ended.stderr.splitlines())
    assert str(tmp_path / "none") in event["message"]

    (check,) = instructions("HEALTHCHECK")
    check_command = json.loads(check.partition("CMD")[2])
    ended = subprocess.run(
        check_command, capture_output=True, text=True, check=False, env=environment
    )
    assert "Connection refused" in ended.stderr
