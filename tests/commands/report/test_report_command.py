"""``rankslice report`` on the folders of real runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import rankslice
from jobs import FIGURE_2_RANKS, build_folder, figure_2

import rankslice as package
from rankslice.framework.errors import RankSliceError
from rankslice.session.build_folder import OWN_ENTRIES


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder after a run from the command line, which wrote its page, too."""
    out = build_folder(tmp_path_factory.mktemp("reported"), figure_2(), FIGURE_2_RANKS)
    page = out.parent / "run.html"
    ended = rankslice("run", out, "--frames", "40", "--verify", "--html", page)
    assert 0 == ended.code, ended.err
    return out


@pytest.fixture
def copied(out: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(out, tmp_path / "other", symlinks=True))


def test_a_runs_page_has_its_figures_and_how_it_was_run(out: Path) -> None:
    page = (out.parent / "run.html").read_text()
    assert "Verify passed: 40 frames compared" in page
    assert f"rankslice run {out} --frames 40 --verify --html" in page
    assert "as fast as they are taken" in page
    assert 4 <= page.count("<svg")


def test_two_runs_are_one_page_with_ratios(out: Path, copied: Path, tmp_path: Path) -> None:
    page, told = tmp_path / "page.html", tmp_path / "told.json"
    ended = rankslice("report", out, copied, "--html", page, "--json", told)
    assert (0, "") == (ended.code, ended.err)
    figures = {each["name"]: each for each in json.loads(told.read_text())["figures"]}
    assert [1.0] == figures["throughput, frames/s"]["ratios"]
    assert f"{copied} / {out}" in page.read_text()
    assert "throughput, frames/s" in ended.out


def test_a_report_that_is_newer_than_the_record_counts_alone(copied: Path) -> None:
    report = json.loads((copied / "report.json").read_text())
    report["ranks"][0]["memory_mb"] = 4321.0
    (copied / "report.json").write_text(json.dumps(report))
    found = package.report(copied)
    assert () == found.runs[0].record.conditions
    assert 4321.0 == found.runs[0].record.summary.ranks[0].memory_mb
    assert "only the ranks' report of its last run is available" in found.differences[0]


def test_pages_of_other_commands_are_linked_from_where_the_page_goes(
    copied: Path, tmp_path: Path
) -> None:
    (copied / "trace.html").write_text("")
    page = tmp_path / "elsewhere" / "page.html"
    page.parent.mkdir()
    assert 0 == rankslice("report", copied, "--html", page).code
    assert '<a href="../other/trace.html">' in page.read_text()


def test_a_record_of_another_job_is_refused(copied: Path) -> None:
    text = (copied / "driver.py").read_text()
    (copied / "driver.py").unlink()
    (copied / "driver.py").write_text(text.replace("window=", "window=1"))
    with pytest.raises(RankSliceError, match="is of another job than the driver's"):
        package.report(copied)


def test_a_build_knows_what_a_run_has_left(out: Path) -> None:
    assert {path.name for path in out.iterdir()} <= OWN_ENTRIES
