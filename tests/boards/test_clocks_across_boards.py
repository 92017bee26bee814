"""What ranks of several boards did, on one clock; and what they did last before a job failed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from real_jobs import FAILING_ENGINE, replace_file

from boards import Board, Boards
from boards.board import UPTIME_STEP_S
from boards.deployments import asleep, chain_for, deploy
from rankslice.backend.boards import ssh
from rankslice.backend.boards.ssh import agent_program
from rankslice.backend.package import write_packages
from rankslice.backend.runtime.figures.events import COMPUTE, FRAME, READ, RECEIVE, SEND, WRITE
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import plan_from_json
from rankslice.measurement.trace.trace_events import (
    RankEvents,
    Trace,
    events_needed,
    failure_of,
    read_failure,
)
from rankslice.session.run import prepare, run
from rankslice.session.shared_options import Launching

pytestmark = pytest.mark.ci

FRAMES = 200
APART_NS = 10**9 * UPTIME_STEP_S
"""How much the kernel's clock of the second board is ahead of that of the first."""
AHEAD_NS = 10_000_000
DRIFT = 50e-6
REMOVED_NS = 50_000
CREDIT_NS = 25_000_000
"""A rank that computes looks for messages at least so often: then the source sees a result."""

OTHER_CLOCK = """
import socket as _socket
import time as _time

if _socket.gethostname() == "board2":
    _kernels_ns = _time.monotonic_ns

    def _monotonic_ns():
        now_ns = _kernels_ns()
        return now_ns + {ahead_ns} + int({drift} * (now_ns - {begin_ns}))

    _time.monotonic_ns = _monotonic_ns
    _time.monotonic = _time.perf_counter = lambda: 1e-9 * _monotonic_ns()
"""
"""Another clock for the programs of the second board, which is ahead and goes faster."""


@dataclass(frozen=True)
class Skewed:
    """A run of two boards, the second of which has a clock of its own."""

    trace: Trace
    begin_ns: int
    """When the second board's clock was ahead by :data:`AHEAD_NS` alone, by that of the kernel."""

    def error_ns(self, rank: RankEvents) -> float:
        """Return how far a rank's times are from the first board's clock, at most."""
        aligned = rank.events["end_ns"]
        passed = rank.clock.inverse().convert(aligned) - self.begin_ns
        true = self.begin_ns + (passed - AHEAD_NS) / (1 + DRIFT) - APART_NS
        return float(np.max(np.abs(aligned - true)))


def monotonic_ns(board: Board) -> int:
    """Return the time since a board's start."""
    return int(board.run(["python3", "-c", "import time; print(time.monotonic_ns())"]).stdout)


@pytest.fixture(scope="module")
def skewed(boards: Boards, tmp_path_factory: pytest.TempPathFactory) -> Skewed:
    """A run after which the times of the second board are known to be wrong."""
    out = asleep(chain_for(boards, tmp_path_factory.mktemp("skewed")), 10)
    begin_ns = monotonic_ns(boards[1])
    clock = OTHER_CLOCK.format(ahead_ns=AHEAD_NS, drift=DRIFT, begin_ns=begin_ns)
    code = out / "runtime" / "__init__.py"
    replace_file(code, code.read_bytes() + clock.encode())
    shutil.rmtree(out / "packages")
    plan = plan_from_json((out / "plan.json").read_text())
    write_packages(out, plan)
    assert 0 == deploy(boards, out).code

    def with_clock(part: str, call: str) -> bytes:
        return agent_program(part, clock + call)

    kept = events_needed(plan, FRAMES)
    options = RunOptions(frames=FRAMES, events=Path("events"), events_kept=kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssh, "agent_program", with_clock)
        trace = run(prepare(out, options, Launching(ssh_config=boards.ssh_config))).trace
    assert trace is not None
    return Skewed(trace, begin_ns)


def test_offset_and_drift_of_a_clock_are_removed(skewed: Skewed) -> None:
    here, there = skewed.trace.ranks
    assert 0 == here.error_ns
    away_ns = there.clock.offset_ns + APART_NS
    assert 0.9 * AHEAD_NS < -away_ns < 1.1 * AHEAD_NS, "nothing was to be removed"
    error_ns = skewed.error_ns(there)
    assert error_ns <= there.error_ns
    assert error_ns < REMOVED_NS


def test_no_tensor_arrives_before_it_was_sent(skewed: Skewed) -> None:
    here, there = skewed.trace.ranks
    sent, received = here.of(SEND), there.of(RECEIVE)
    assert FRAMES == len(sent) == len(received)
    begins = dict(zip(sent["frame"], sent["begin_ns"], strict=True))
    way_ns = received["end_ns"] - np.array([begins[frame] for frame in received["frame"]])
    assert way_ns.min() >= -there.error_ns


def test_the_latency_of_the_trace_is_that_measured_at_the_source(skewed: Skewed) -> None:
    here, there = skewed.trace.ranks
    measured, written = here.of(FRAME), there.of(WRITE)
    assert FRAMES == len(measured) == len(written)
    ends = dict(zip(written["frame"], written["end_ns"], strict=True))
    traced_ns = np.array([ends[each["frame"]] - each["begin_ns"] for each in measured])
    credit_ns = measured["end_ns"] - measured["begin_ns"] - traced_ns
    assert credit_ns.min() >= -there.error_ns
    assert np.median(credit_ns) < CREDIT_NS + there.error_ns


def test_what_ranks_did_last_is_kept_of_a_job_that_failed(boards: Boards, tmp_path: Path) -> None:
    fails = {1: {"fails": "149"}}
    chain = chain_for(boards, tmp_path / "job")
    out = asleep(chain, 10, engine=FAILING_ENGINE, options=fails)
    assert 0 == deploy(boards, out).code
    prepared = prepare(out, RunOptions(frames=1000), Launching(ssh_config=boards.ssh_config))
    with pytest.raises(RankSliceError, match="--failure"):
        run(prepared)
    failure = failure_of(out)
    assert () == failure.missing
    assert "frame 149: RuntimeError: the accelerator is gone" in failure.message[0]
    here, there = read_failure(out, prepared.plan).ranks
    assert 148 == there.of(COMPUTE)["frame"].max()
    assert here.of(READ)["frame"].max() >= 149
    # The watches have compared the clocks, as nobody asked for events.
    assert abs(there.clock.offset_ns + APART_NS) <= there.error_ns < 1e9
