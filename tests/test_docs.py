"""What the README and the documentation show is run for real, page by page."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import printed
from needed import NEEDS_FIRST_CORES
from shown_commands import fenced, steps

from rankslice.backend.runtime.figures import events
from rankslice.commands.report import report
from rankslice.exploration.results import front_files
from rankslice.framework import plan
from rankslice.measurement import summary
from rankslice.measurement.bench import bench_records
from rankslice.session import internals
from rankslice.views import inspection_json, live, models_side_by_side, tflite_object

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
SHIPPED = ("models", "mappings", "platforms", "tests/models/tflite")


def needs_litert(line: list[str]) -> bool:
    """Tell whether a line needs LiteRT: to look inside it, or to run what was built of .tflite."""
    loads = "--internals" in line or line[1:2] == ["build"]
    return loads and any(word.endswith(".tflite") for word in line)


def is_demo(line: list[str]) -> bool:
    return line[:2] == ["rankslice", "demo"]


def needs_tensorflow(line: list[str]) -> bool:
    return any(word.endswith((".h5", "_saved_model")) for word in line)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what the examples read."""
    for name in SHIPPED:
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.ci
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if steps(page)], ids=lambda page: page.name
)
def test_the_commands_of_a_page_run(page: Path, checkout: Path) -> None:
    lines = [line for step in steps(page) for line in step.lines]
    if any(map(needs_litert, lines)):
        pytest.importorskip(
            "ai_edge_litert", reason="ai-edge-litert is not installed (extra: litert)"
        )
    for step in steps(page):
        if not any(is_demo(line) or needs_tensorflow(line) for line in step.lines):
            output = "".join(printed(line, checkout, COLUMNS="100") for line in step.lines)
            assert [] == step.lacks(output), f"{step.lines}\n{output}"


@NEEDS_FIRST_CORES
def test_the_readme_shows_what_the_commands_print(checkout: Path) -> None:
    shown = [
        part.partition("\n")
        for language, text in fenced(ROOT / "README.md")
        if language == "console"
        for part in text.split("$ ")
    ]
    for command, _, output in shown:
        if output and command.startswith(("rankslice inspect", "rankslice build")):
            lines = printed(shlex.split(command), checkout, COLUMNS="100").splitlines()
            assert output.splitlines() == [line.rstrip() for line in lines]
        if output and command.startswith("cat"):
            assert output == (checkout / command.split()[1]).read_text(encoding="utf-8")


@NEEDS_FIRST_CORES
def test_the_picture_is_the_one_that_inspect_draws(checkout: Path) -> None:
    mapping = "mappings/digits-three-ranks.json"
    printed(
        ["rankslice", "inspect", "models/digits.onnx", "--mapping", mapping, "--svg", "d.svg"],
        checkout,
    )
    shown = ROOT / "docs" / "images" / "digits-inspected.svg"
    assert shown.read_bytes() == (checkout / "d.svg").read_bytes(), "draw it anew"


@pytest.mark.slow
def test_the_demo_runs_as_the_pages_show_it(checkout: Path) -> None:
    lines = [line for page in PAGES for step in steps(page) for line in step.lines]
    demos = {tuple(line) for line in lines if is_demo(line)}
    assert demos
    for line in demos:
        assert "frames/s" in printed(line, checkout, COLUMNS="100")


def test_the_readme_is_short_and_shows_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 150 >= len(text.splitlines())
    listed = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\| `([a-z]+)[ `]", listed.partition("**Options")[0], re.MULTILINE)
    assert 14 == len(commands)
    assert commands == [name for name in commands if re.search(rf"^\| \[`{name}`\]", text, re.M)]


def test_the_command_line_page_says_what_the_command_line_says() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generate_cli.py"))
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert page == script["generated_page"](page), "run: python docs/generate_cli.py"


def test_the_picture_of_the_live_view_is_what_the_command_shows() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generate_live.py"))
    drawn, kept = (
        re.findall(r">([^<>]*)</text>", text)
        for text in (script["picture"](), script["PICTURE"].read_text(encoding="utf-8"))
    )
    assert drawn == kept, "run: python docs/generate_live.py"


@pytest.mark.parametrize("command", ["inspect", "build", "run", "probe", "deploy", "demo"])
def test_the_command_line_page_has_the_options_of_the_help_and_no_others(
    command: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = re.search(rf"<!-- {command} -->(.*)<!-- end of {command} -->", page, re.DOTALL)
    assert section is not None
    documented = re.findall(r"^\| `(--[a-z-]+)", section[1], re.MULTILINE)
    help_text = printed(["rankslice", command, "--help"], tmp_path, COLUMNS="300")
    flags = re.findall(r"^\W*(--[a-z-]+)", help_text, re.MULTILINE)
    assert sorted([*documented, "--help"]) == sorted(flags)


def test_the_page_of_formats_says_the_versions_that_are_written() -> None:
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    versions = dict(
        re.findall(r"^\| `format`, `version` \| `(rankslice-\w+)`, (\d+) \|", page, re.M)
    )
    formats = (
        *(
            plan,
            front_files,
            inspection_json,
            tflite_object,
            models_side_by_side,
            internals,
            live,
            summary,
            bench_records,
            report,
        ),
        events,
    )
    written = {module.FORMAT: str(module.VERSION) for module in formats}
    assert written == versions


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [] == [target for target in local if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    rooms = "|".join(room.name for room in (ROOT / "src" / "rankslice").iterdir() if room.is_dir())
    named = re.findall(rf"`((?:{rooms}|benchmarks|tests)/[\w/.-]*)`", page.read_text("utf-8"))
    assert [] == [name for name in named if not (ROOT / name).exists()]
