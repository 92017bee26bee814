"""The programs in ``examples/`` run as they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import printed
from needed import NEEDS_FIRST_CORES

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "async_requests.py": "8 clients",
    "build_and_compare.py": "360 frames, largest difference 0\n",
    "explore_and_run.py": "measured: ",
    "feed_a_pipeline.py": "98.3% of 360 digits are right",
}


def run(program: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", program]
    return printed(command, folder, MPLBACKEND="agg", TMPDIR=str(folder))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "feed_a_pipeline.py" else pytest.mark.ci)
        for name in PRINTED
    ],
)
@NEEDS_FIRST_CORES
def test_an_example_runs_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    assert PRINTED[name] in run((EXAMPLES / name).read_text(encoding="utf-8"), tmp_path)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.ci
def test_the_cells_of_the_notebook_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra: explore)")
    cells = json.loads((EXAMPLES / "pipeline.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert "98.3% right" in run("\n".join(code), tmp_path)


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads((EXAMPLES / "pipeline.ipynb").read_text(encoding="utf-8"))["cells"]
    assert [] == [
        cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")
    ]


def test_every_example_is_run() -> None:
    names = {file.name for file in EXAMPLES.iterdir() if file.suffix in (".ipynb", ".py")}
    assert {*PRINTED, "pipeline.ipynb"} == names
