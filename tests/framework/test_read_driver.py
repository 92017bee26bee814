"""A generated driver that a user edits: what changes then, or why it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned

from rankslice.backend.codegen import render_driver
from rankslice.backend.package import renew_packages, write_driver, write_packages
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Facts, Job
from rankslice.backend.runtime.job.check import sound
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.reading.read_driver import read_driver
from rankslice.frontend.plan.tables import write_tables

PLAN = planned(
    FIGURE_2,
    FIGURE_2_RANKS,
    tuple(replace(rank, cores=(rank.rank + 1,)) for rank in FIGURE_2_PLACEMENTS),
)


def edited(folder: Path, plan: Plan, *words: str) -> Job:
    """Return the job of a plan's driver in which words are replaced."""
    text = render_driver(plan)
    assert words[0] in text
    (folder / "driver.py").write_text(text.replace(words[0], words[1], 1))
    return read_driver(folder / "driver.py")


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [
        ("cores=(2,)", "cores=(5, 6)", lambda job: (5, 6) == job.ranks[1].cores),
        ("cores=(2,)", "cores=[5, 6]", lambda job: (5, 6) == job.ranks[1].cores),
        ("window=8", "window=3", lambda job: 3 == job.window),
        (
            "cores=(2,),",
            'cores=(2,), options={"x": "y"},',
            lambda job: (("x", "y"),) == job.ranks[1].options,
        ),
        (
            "cores=(2,),",
            'cores=(2,), environment={"A": "b"},',
            lambda job: (("A", "b"),) == job.ranks[1].environment,
        ),
        ('engine="onnxruntime"', 'engine="null"', lambda job: "null" == job.ranks[0].engine),
        ('accelerator="cpu"', 'accelerator="gpu"', lambda job: "gpu" == job.ranks[0].accelerator),
        ('host="edge04"', 'host="10.0.0.9"', lambda job: "10.0.0.9" == job.ranks[2].host),
        (
            'outputs=("Buff2",)',
            'outputs=("Buff2",), facts=Facts("it keeps variables", operators=4)',
            lambda job: Facts("it keeps variables", operators=4) == job.ranks[1].runs[0].facts,
        ),
        (
            'Tensor("Buff2", "float32"',
            'Tensor("Buff2", "float16"',
            lambda job: "float16" == job.tensors["Buff2"].dtype,
        ),
    ],
)
def test_an_edited_entry_has_its_effect(
    before: str, after: str, holds: Callable[[Job], bool], tmp_path: Path
) -> None:
    job = edited(tmp_path, PLAN, before, after)
    assert holds(job)
    assert job.sha256 != PLAN.job.sha256


def test_comments_and_line_breaks_change_nothing(tmp_path: Path) -> None:
    job = edited(tmp_path, PLAN, "window=8,", "\n\n  # few\n window = 8 ,")
    assert (PLAN.job, PLAN.job.sha256) == (job, job.sha256)


@pytest.mark.parametrize(
    ("before", "after", "line_of", "message"),
    [
        ('Send("Buff1", to=1), ', "", 'Receive("Buff1"', "rank 0 sends it to 2"),
        ('host="edge01"', 'host="e"', 'host="edge01"', "the host of board 'edge01' is 'e'"),
        ("window=8", "window=0", "window=", "window: found 0; expected a number from 1 to 65536"),
        ("cores=(2,)", "cores=()", "cores=()", "ranks[1].cores: found []; expected numbers"),
        ("cores=(2,)", "cores=2", "cores=2", "ranks[1].cores: found 2; expected a list"),
        ("source=0,\n", "source=7,\n", "source=7", "source: there is no rank 7; expected 0 to 2"),
        ("submodels/edge01_gpu.0.onnx", "../x.onnx", "../x.onnx", "'../x.onnx' is not the name"),
        (
            'outputs=("Buff2",)',
            'outputs=("Buff2",), facts=Facts(operators=-1)',
            "operators=-1",
            "ranks[1].runs[0].facts.operators: found -1; expected 0 or more",
        ),
        (
            'outputs=("Buff2",)',
            'outputs=("Buff2",), facts=Facts(keeps="a\\n")',
            "keeps=",
            "ranks[1].runs[0].facts.keeps: it has characters that cannot be printed",
        ),
        (
            'outputs=("Buff2",)',
            'outputs=("Buff2",), facts=Facts(divides="no")',
            "divides=",
            "ranks[1].runs[0].facts.divides: found 'no'; expected true or false",
        ),
        ("JOB = Job(", "JOB = open(", "JOB", "found open(...); expected Facts, Job, Rank"),
        ("window=8", "window=8 + 8", "window=", "found '8 + 8'; expected a literal"),
        ("window=8", "windows=8", "JOB", "Job has no field 'windows'; expected model, window"),
        ("window=8,", "", "JOB", "Job lacks fields; expected 'window'"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_line(
    before: str, after: str, line_of: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RankSliceError) as raised:
        edited(tmp_path, PLAN, before, after)
    lines = (tmp_path / "driver.py").read_text().splitlines()
    matching = [text for text in map(str, raised.value.mistakes) if message in text]
    assert matching
    number = int(matching[0].removeprefix(f"{tmp_path}/driver.py:").partition(":")[0])
    assert line_of in lines[number - 1]


def test_the_folder_of_a_driver_is_named_however_long_it_is(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 90)
    folder.mkdir()
    with pytest.raises(RankSliceError) as raised:
        edited(folder, PLAN, "window=8", "window=0")
    assert f"{folder}/driver.py:" in str(raised.value)


def test_a_rank_refuses_what_the_launcher_refuses() -> None:
    job = replace(PLAN.job, ranks=(replace(PLAN.ranks[0], sends=()), *PLAN.ranks[1:]))
    with pytest.raises(JobError) as raised:
        sound(job, "driver.py")
    expected = "ranks[1].receives[0]: rank 1 receives 'Buff1' from 0; rank 0 sends it to nobody"
    assert f"driver.py: {expected}" in str(raised.value).splitlines()
    assert PLAN.job == sound(PLAN.job, "driver.py")


def test_nothing_of_a_driver_is_run(tmp_path: Path) -> None:
    path = tmp_path / "driver.py"
    touched = tmp_path / "touched"
    path.write_text(f"open({str(touched)!r}, 'w')\n{render_driver(PLAN)}")
    assert PLAN.job == read_driver(path)
    assert not touched.exists()


def test_an_edited_driver_is_a_new_package(tmp_path: Path) -> None:
    write_driver(tmp_path, PLAN)
    for name in ("sender.json", "receiver.json", "rankfile", "hostfile"):
        (tmp_path / name).touch()
    (tmp_path / "submodels").mkdir()
    for segment in PLAN.segments:
        (tmp_path / segment.file).touch()
    packages = write_packages(tmp_path, PLAN)
    before = [(package / "manifest.json").read_bytes() for package in packages]
    renew_packages(tmp_path, PLAN)
    assert before == [(package / "manifest.json").read_bytes() for package in packages]
    text = render_driver(PLAN).replace("window=8", "window=3")
    (tmp_path / "driver.py").unlink()
    (tmp_path / "driver.py").write_text(text)
    renew_packages(tmp_path, PLAN)
    for package, manifest in zip(packages, before, strict=True):
        assert text == (package / "driver.py").read_text()
        assert manifest != (package / "manifest.json").read_bytes()


def test_tables_and_files_for_mpirun_follow_the_driver(tmp_path: Path) -> None:
    write_tables(tmp_path, PLAN)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    write_tables(tmp_path, PLAN)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    moved = edited(tmp_path, PLAN, 'host="edge04"', 'host="10.0.0.9"')
    write_tables(tmp_path, replace(PLAN, job=moved))
    assert "rank 2=10.0.0.9 slot=3\n" in (tmp_path / "rankfile").read_text()
    assert "10.0.0.9 slots=1\n" in (tmp_path / "hostfile").read_text()
