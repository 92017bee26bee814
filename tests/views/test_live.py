"""``run --live``: what a terminal, a file of messages and lines of JSON show of a running job."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import struct
import subprocess
import termios
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from command_line import COMMAND, rankslice_process, succeed
from real_jobs import chain_folder, let_ranks_sleep
from rich.console import Console

from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.framework.plan import Plan, plan_from_json
from rankslice.session.across_boards import own_values
from rankslice.session.build_folder import PLAN
from rankslice.views.live import LiveState, LiveView, live_line, live_view

FPS, SLEEP_MS = 50, 15


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, each of which is busy for three quarters of the time at 50 frames/s."""
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("live"), 2), SLEEP_MS)


@pytest.fixture(scope="module")
def plan(out: Path) -> Plan:
    return plan_from_json((out / PLAN).read_text())


def test_lines_agree_with_the_figures_of_the_run(out: Path, tmp_path: Path) -> None:
    lines, record = tmp_path / "live.jsonl", tmp_path / "run.json"
    ended = rankslice_process(
        *("run", out, "--fps", str(FPS), "--frames", "130", "--live", lines, "--json", record)
    )
    assert 0 == ended.code, ended.err
    report = json.loads(record.read_text())
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {("rankslice-live", 1, "local")} == {
        (line["format"], line["version"], line["board"]) for line in records
    }
    values = [line["values"] for line in records if line["values"].get("rate_fps")]
    middle = values[1:-1] or values
    assert FPS == pytest.approx(fmean(sample["rate_fps"] for sample in middle), rel=0.15)
    for rank in report["ranks"]:
        name = f"compute_share.rank{rank['rank']}"
        share = fmean(sample[name] for sample in middle)
        assert rank["steady"]["compute_share"] == pytest.approx(share, abs=0.1)
        largest = max(sample[f"memory_mb.rank{rank['rank']}"] for sample in values)
        assert largest == pytest.approx(rank["memory_mb"], rel=0.1)
    p50 = fmean(sample["latency_p50_ms"] for sample in middle)
    assert report["latency_ms"]["p50"] == pytest.approx(p50, rel=0.2)
    (board,) = report["hardware"]
    assert len(values) == board["samples"]
    assert board["series"]["completed"]["max"] == values[-1]["completed"]
    assert records[0]["absent"] == board["absent"]
    assert "hardware of local: " in ended.out


def in_terminal(*arguments: str | Path) -> tuple[int, str]:
    """Run a command whose output is a terminal of 100 columns; return code and all it shows."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    command = [*COMMAND, *map(str, arguments)]
    variables = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables
    ) as job:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal ends with the command
            while block := os.read(ours, 1 << 16):
                shown += block
        os.close(ours)
    return job.returncode, shown.decode()


@pytest.mark.ci
def test_a_terminal_shows_ranks_and_boards_and_then_the_figures(out: Path) -> None:
    code, shown = in_terminal("run", out, "--fps", str(FPS), "--frames", "150", "--live")
    assert 0 == code, shown
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "0 of 150 frames; the job is starting" in text
    assert re.search(r"\d+ of 150 frames, (49|50|51)\.\d frames/s, latency p50 3\d\.\d+ ms", text)
    row = r"│ 1    │ local_cpu\S+ +│ +(49|50|51)\.\d │ +7\d % │ +2\d % │ +\d+ % │ +\d+ MB │"
    assert re.search(row, text)
    assert re.search(r"│ local │ +\S+ GB │", text)
    # The view has gone once the figures are there.
    assert shown.rindex("\x1b[2K") < shown.rindex("bottleneck")
    assert "\x1b[?25h" in shown


@pytest.mark.ci
def test_a_file_of_messages_gets_a_line_a_second(out: Path) -> None:
    ended = rankslice_process("run", out, "--fps", str(FPS), "--frames", "90", "--live")
    assert 0 == ended.code, ended.err
    line = r"\d s: \d+ of 90 frames, \d+\.\d frames/s, latency .* rank 1 computes \d+ %"
    assert re.search(line, ended.err), ended.err
    assert "\x1b" not in ended.err


RUBIK_PI = Sample(
    1,
    {
        "temperature_c.cpu0-thermal": 71.2,
        "temperature_c.gpuss0-thermal": 55.0,
        "frequency_mhz.policy0": 1209.6,
        "frequency_mhz.policy7": 2707.2,
        "cooling_state.thermal-cpufreq-0": 2.0,
        "memory_available_mb": 5120.0,
        "power_w": 6.43,
        "rate_fps": 24.31,
        "latency_p50_ms": 81.2,
        "latency_p99_ms": 95.04,
        "frames_inside": 4.0,
        "frames_waiting": 0.25,
        "completed": 812.0,
        "frames_per_s.rank0": 24.3,
        "compute_share.rank0": 0.981,
        "wait_share.rank0": 0.012,
        "processor_share.rank0": 3.87,
        "memory_mb.rank0": 143.2,
    },
    ("GPU",),
)


def shown(state: LiveState) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(live_view(state))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_view_says_what_limits_and_what_heats(plan: Plan) -> None:
    state = LiveState(plan, 1000)
    state.take("edge01", RUBIK_PI)
    state.take("edge02", Sample(1, {"compute_share.rank1": 0.25, "temperature_c.\x1b[2J": 40.0}))
    text = shown(state)
    assert (
        "812 of 1000 frames, 24.3 frames/s, latency p50 81.20 ms, p99 95.04 ms; 4 inside,"
        " 0.2 waiting"
    ) in text
    assert re.search(r"24\.3 │ +98 % │ +1 % │ +387 % │ +143 MB", text)
    assert re.search(r"- │ +25 % │ +- │ +- │ +- │", text)
    board = r"71 °C \(cpu0-thermal\) │ 1210-2707 MHz │ thermal-cpufreq-0 │ 6\.43 W │ +5\.12 GB"
    assert re.search(board, text)
    assert "\x1b[2J" not in text
    line = live_line(state)
    assert "rank 0 computes 98 %, waits 1 %" in line
    assert "edge01 71 °C (cpu0-thermal), 6.43 W" in line


def test_boards_keep_the_order_of_the_plan_whichever_tells_first(plan: Plan) -> None:
    ranks = [replace(rank, board=f"edge0{rank.rank + 1}") for rank in plan.ranks]
    state = LiveState(plan.with_ranks(ranks), 1000)
    for board in ("edge02", "edge01", "edge02"):
        state.take(board, RUBIK_PI)
    assert ["edge01", "edge02"] == list(state.samples)


def test_a_terminal_that_cannot_go_back_gets_a_line_a_second(plan: Plan) -> None:
    dumb = io.StringIO()
    console = Console(file=dumb, force_terminal=True, width=500, _environ={"TERM": "dumb"})
    with LiveView(LiveState(plan, 1000), console) as view:
        view.take("edge01", RUBIK_PI)
    assert "0 s: 812 of 1000 frames" in dumb.getvalue()


def test_a_job_without_a_known_end_has_no_total(plan: Plan) -> None:
    state = LiveState(plan, None)
    assert "0 frames; the job is starting" in shown(state)
    state.completed = 7
    assert "7 frames\n" in shown(state).replace(" \n", "\n")


def test_a_board_tells_of_its_own_ranks_alone(plan: Plan) -> None:
    board = plan.ranks[0].board
    values = dict.fromkeys(("cpu_s.rank0", "cpu_s.rank7", "rate_fps", "temperature_c.x"), 1.0)
    kept = own_values(plan, board, Sample(1, values)).values
    assert ["cpu_s.rank0", "rate_fps", "temperature_c.x"] == [*kept]
    assert ["temperature_c.x"] == [*own_values(plan, "another", Sample(1, values)).values]


def test_a_bare_option_may_stand_before_others(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out.parent)
    succeed("run", "--live", "out", "--dry-run")
