"""``rankslice report`` on the folders of real runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import rankslice, succeed
from jobs import FIGURE_2_RANKS, build_folder, figure_2

import rankslice as package
from rankslice.framework.errors import RankSliceError
from rankslice.session.build_folder import OWN_ENTRIES


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder after a run from the command line, which wrote its page, too."""
    out = build_folder(tmp_path_factory.mktemp("reported"), figure_2(), FIGURE_2_RANKS)
    page = out.parent / "run.html"
    succeed("run", out, "--frames", "40", "--verify", "--html", page)
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
    page, record = tmp_path / "page.html", tmp_path / "told.json"
    ended = rankslice("report", out, copied, "--html", page, "--json", record)
    assert (0, "") == (ended.code, ended.err)
    figures = {figure["name"]: figure for figure in json.loads(record.read_text())["figures"]}
    assert [1.0] == figures["throughput, frames/s"]["ratios"]
    assert f"{copied} / {out}" in page.read_text()
    assert "throughput, frames/s" in ended.out


def test_a_report_that_is_newer_than_the_record_counts_alone(copied: Path) -> None:
    report = json.loads((copied / "report.json").read_text())
    report["ranks"][0]["memory_mb"] = 4321.0
    (copied / "report.json").write_text(json.dumps(report))
    reported = package.report(copied)
    assert () == reported.runs[0].record.conditions
    assert 4321.0 == reported.runs[0].record.summary.ranks[0].memory_mb
    assert "only the ranks' report of its last run is available" in reported.differences[0]


def test_pages_of_other_commands_are_linked_from_where_the_page_goes(
    copied: Path, tmp_path: Path
) -> None:
    (copied / "trace.html").write_text("")
    page = tmp_path / "elsewhere" / "page.html"
    page.parent.mkdir()
    succeed("report", copied, "--html", page)
    assert '<a href="../other/trace.html">' in page.read_text()


def test_a_record_of_another_job_is_refused(copied: Path) -> None:
    text = (copied / "driver.py").read_text()
    (copied / "driver.py").unlink()
    (copied / "driver.py").write_text(text.replace("window=", "window=1"))
    with pytest.raises(RankSliceError, match="is of another job than the driver's"):
        package.report(copied)


def test_a_build_knows_what_a_run_has_left(out: Path) -> None:
    assert {path.name for path in out.iterdir()} <= OWN_ENTRIES


OPERATORS = "board,accelerator,engine,operator,shapes,kernel,count,mean_ms,p50_ms,p95_ms\n"


def test_tables_of_operators_stand_side_by_side(tmp_path: Path) -> None:
    first, second = tmp_path / "pi.csv", tmp_path / "nano.csv"
    first.write_text(
        f"{OPERATORS}pi,pi_cpu0,litert,CONV_2D a,1x2,Conv IGEMM,20,1.5,1.5,1.6\n"
        "pi,pi_cpu0,litert,ADD b,1x2,Add,20,0.5,0.5,0.6\n"
    )
    second.write_text(f"{OPERATORS}nano,nano_cpu0,litert,CONV_2D a,1x2,Conv IGEMM,20,3.0,3,3\n")
    page, record = tmp_path / "page.html", tmp_path / "told.json"
    ended = rankslice("report", first, second, "--html", page, "--json", record)
    assert (0, "") == (ended.code, ended.err)
    cells = [[cell.strip() for cell in line.split("│")] for line in ended.out.splitlines()]
    rows = {line[1]: line[2:5] for line in cells if len(line) > 4}
    assert ["1x2", "1.50", "3.00"] == rows["CONV_2D a"]
    assert ["1x2", "0.5", "–"] == rows["ADD b"]
    assert ["", "2.00", "3.00"] == rows["all operators"]
    assert "nano_cpu0" in page.read_text()
    (one, _) = json.loads(record.read_text())["operators"]
    assert (str(first), 1.5) == (one["name"], one["operators"][0]["mean_ms"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n", "is no table of operators; expected a file of trace --csv"),
        (f"{OPERATORS}pi,pi_cpu0,litert\n", "line 2: has 3 values; expected 10"),
        (f"{OPERATORS}pi,pi_cpu0,litert,a,,k,20,-1,0,0\n", "line 2: its last four values are none"),
        (f"{OPERATORS}pi,pi_cpu0,litert,a,,k,x,1,1,1\n", "line 2: its last four values are none"),
    ],
)
def test_a_table_that_is_none_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text)
    ended = rankslice("report", tmp_path / "table.csv", "--html", tmp_path / "page.html")
    assert 1 == ended.code
    assert expected in ended.err.replace("\n", " ")
    assert not (tmp_path / "page.html").exists()
