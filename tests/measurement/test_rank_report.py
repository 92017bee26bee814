"""Reports and results that another machine wrote: read as a job writes them, or refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import run_in_process
from jobs import FIGURE_2_RANKS, build_folder, figure_2
from lies import HOSTILE, WHOLE, as_text, paths_in, with_lie
from rich.console import Console

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import results_of
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan, plan_from_json
from rankslice.framework.reading.read_driver import read_driver
from rankslice.measurement.rank_report import read_report
from rankslice.measurement.summary import summarise
from rankslice.views.run_text import run_parts
from rankslice.views.terminal import show

FRAMES = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder, and what a run has left in it."""
    made = build_folder(tmp_path_factory.mktemp("reported"), figure_2(), FIGURE_2_RANKS)
    paths = {"results": made / "results.bin", "report": made / "report.json"}
    run_in_process(made, RunOptions(frames=FRAMES, bind=False, **paths))
    return made


@pytest.fixture(scope="module")
def plan(folder: Path) -> Plan:
    return plan_from_json((folder / "plan.json").read_text())


def read(text: str, folder: Path, plan: Plan) -> str:
    """Return what is shown of a report."""
    (folder / "told.json").write_text(text, errors="surrogatepass")
    records = read_report(folder / "told.json", plan, FRAMES)
    summary = summarise(records, np.arange(FRAMES) / 10)
    console = Console(width=200)
    with console.capture() as captured:
        show(console, *run_parts(summary))
    json.dumps(summary.to_json(), allow_nan=False)
    return captured.get()


def test_what_a_job_writes_is_read(folder: Path, plan: Plan) -> None:
    assert "6 frames" in read((folder / "report.json").read_text(), folder, plan)
    assert FRAMES == len(results_of(read_driver(folder / "driver.py"), folder / "results.bin"))


def test_lies_in_any_field_of_a_report_are_one_message_or_do_nothing(
    folder: Path, plan: Plan
) -> None:
    honest: dict[str, Any] = json.loads((folder / "report.json").read_text())
    energy = {"board": "x", "source": "measured", "sensor": "y", "joules": 1.0, "seconds": 2.0}
    honest["ranks"][0]["energy"] = {
        **energy,
        "mean_w": 0.5,
        "mj_per_frame": None,
        "reason": None,
        "rails": {"z": 0.5},
    }
    by = {"by": "x", "operators": 1, "of": 2, "partitions": 3, "others": ["Relu"], "uses": ["y"]}
    by |= {"tf32": True}
    honest["ranks"][0]["accelerated"] = {**by, "without": {"z": "it has If"}}
    shares = {"compute_share": 0.5, "cpu_share": 1.5}
    honest["ranks"][0]["steady"] = {"frames": 4, **shares}
    rest = itertools.cycle(HOSTILE)
    lies = [(path, lie) for path in paths_in(honest) for lie in itertools.islice(rest, 2)]
    told: list[str] = []
    refused = 0
    for text in (*(as_text(with_lie(honest, *each)) for each in lies), *WHOLE):
        try:
            read(text, folder, plan)
        except RankSliceError as error:
            told += map(str, error.mistakes)
            refused += 1
    assert refused > len(lies) / 2
    assert all(each.isprintable() for each in told)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (7, "has 5 ranks, and the plan"),
        (8, "6 frames entered, and 7 came"),
        (9, "6 frames entered, and 9 came"),
    ],
)
def test_a_report_of_another_job_is_refused(
    number: int, message: str, folder: Path, plan: Plan
) -> None:
    record = json.loads((folder / "report.json").read_text())
    if number == 7:
        record["ranks"] = [record["ranks"][0]] * 5
    if number == 9:
        next(rank["sink"] for rank in record["ranks"] if rank["sink"])["failed"] = 2
    (folder / "told.json").write_text(json.dumps(record))
    with pytest.raises(RankSliceError, match=message):
        read_report(folder / "told.json", plan, 7)


def test_a_report_of_ranks_that_take_other_turns_is_refused(folder: Path, plan: Plan) -> None:
    record = json.loads((folder / "report.json").read_text())
    record["ranks"][1]["turns"] = {"period": 2, "positions": [1]}
    (folder / "told.json").write_text(json.dumps(record))
    with pytest.raises(RankSliceError, match=r"ranks\[1\] takes different turns than in the plan"):
        read_report(folder / "told.json", plan, FRAMES)


def test_results_of_another_job_or_out_of_order_are_refused(folder: Path, tmp_path: Path) -> None:
    job = read_driver(folder / "driver.py")
    whole = (folder / "results.bin").read_bytes()
    bad = tmp_path / "results.bin"
    bad.write_bytes(whole.replace(job.sha256.encode(), b"f" * 64))
    with pytest.raises(JobError, match="has the results of another job"):
        results_of(job, bad)
    begin = whole.index(b"\n", 20) + 1
    size = (len(whole) - begin) // FRAMES
    frames = [whole[begin + size * n : begin + size * (n + 1)] for n in range(FRAMES)]
    bad.write_bytes(whole[:begin] + b"".join(reversed(frames)))
    with pytest.raises(JobError, match="has frames that are out of order"):
        results_of(job, bad)
    not_a_time = np.float64("nan").tobytes()
    bad.write_bytes(whole[: begin + 8] + not_a_time + whole[begin + 16 :])
    with pytest.raises(JobError, match="has frames that are out of order"):
        results_of(job, bad)


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ([(7, "surge")], "switches is not in order"),
        ([(4, "surge"), (3, "normal")], "switches is not in order"),
        ([(4, "normal")], "switches has a change to the same route"),
        ([(4, "surge")], "switches has changes, and the plan has one route"),
    ],
)
def test_changes_of_the_route_that_cannot_have_been_are_refused(
    switches: list[tuple[int, str]], message: str, folder: Path, plan: Plan
) -> None:
    record = json.loads((folder / "report.json").read_text())
    (source,) = (each["source"] for each in record["ranks"] if each["source"])
    rest = {"time_s": 1.0, "waiting": 1, "reason": "x"}
    source["switches"] = [{"frame": frame, "route": route, **rest} for frame, route in switches]
    (folder / "told.json").write_text(json.dumps(record))
    with pytest.raises(RankSliceError, match=message):
        read_report(folder / "told.json", plan, FRAMES)


def test_a_report_of_a_job_with_another_number_of_routes_is_refused(
    folder: Path, plan: Plan
) -> None:
    record = json.loads((folder / "report.json").read_text())
    names = ("frames", "compute_ms", "compute_counts", "turns", "steady")
    record["ranks"][0]["surge"] = {name: record["ranks"][0][name] for name in names}
    (folder / "told.json").write_text(json.dumps(record))
    with pytest.raises(RankSliceError, match=r"ranks\[0\] was on the route for a surge"):
        read_report(folder / "told.json", plan, FRAMES)
