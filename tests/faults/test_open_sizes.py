"""Jobs whose tensors change their size, and a rank that breaks the rules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import COMMAND
from real_jobs import chain_folder, change_plan, let_ranks_sleep, replace_file

from rankslice.framework.plan import Plan

pytestmark = [pytest.mark.ci, pytest.mark.timeout(120)]

LYING = """

_honest = MpiTransport.send_part


def _send_part(mpi, lane, slot, nbytes):
    whole = np.zeros(nbytes + 900, np.uint8)
    whole[:nbytes] = mpi._sends[lane].slots[slot][:nbytes]
    mpi.sent = getattr(mpi, "sent", 0) + 1
    if mpi.sent == 20:
        LIE
    sends, end = list(mpi._sends), mpi._sends[lane]
    mpi._sends = list(sends)
    mpi._sends[lane] = Lane(end.channel, end.peer, (whole,) * len(end.slots), True)
    _honest(mpi, lane, slot, nbytes)
    mpi._sends = sends


MpiTransport.send_part = _send_part
"""

TOO_MUCH = """

def _sized(slot, source):
    return slot.shaped((1, 17))
"""

BEYOND = "whole[20:24].view(np.int32)[0] = 17"

FAULTS = {
    "a shape beyond the bound": (
        BEYOND,
        "",
        r"rank 1 .*message of rank 0, frame 19: tensor 't0' of shape \[1, 17\] is beyond its bound",
    ),
    "a message longer than a slot": (
        "nbytes += 900",
        "",
        r"rank 1 .*rank 0 sent \d+ bytes through channel 1, more than its tensor may have",
    ),
    "an engine with an output beyond the bound": (
        "",
        TOO_MUCH,
        r"rank 0 .*segment 0, frame 0: tensor 't0' of shape \[1, 17\] is beyond its bound \[1, 16\]"
        r".*--at-most t0=1,17",
    ),
}


def with_open_sizes(plan: Plan) -> Plan:
    (tensor,) = plan.job.between
    return replace(plan, job=replace(plan.job, between=(replace(tensor, symbols=("", "?")),)))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of two ranks with an open tensor between them."""
    folder = chain_folder(tmp_path_factory.mktemp("open"), 2)
    change_plan(folder, with_open_sizes)
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_that_breaks_a_bound_ends_the_job_with_one_message(
    built: Path, tmp_path: Path, fault: str
) -> None:
    lie, engine, message = FAULTS[fault]
    folder = tmp_path / "out"
    shutil.copytree(built, folder)
    assert_ends_with(message, folder, lie, engine)


def test_a_receiver_that_takes_turns_names_the_frame_of_the_stream(tmp_path: Path) -> None:
    folder = chain_folder(tmp_path, 2, weights={1: (1, 1)})
    change_plan(folder, with_open_sizes)
    message = r"rank 2 .*message of rank 0, frame 19: tensor 't0' of shape \[1, 17\] is beyond"
    assert_ends_with(message, folder, BEYOND, "")


def assert_ends_with(message: str, folder: Path, lie: str, engine: str) -> None:
    """Let a job break a bound, and compare the only message with a pattern."""
    let_ranks_sleep(folder, 0, engine=engine)
    if lie:
        code = folder / "runtime" / "transport.py"
        replace_file(code, code.read_bytes() + LYING.replace("LIE", lie).encode())
    options = ("--frames", "200", "--no-direct", "--results", folder.parent / "r.bin")
    ended = subprocess.run(
        [*COMMAND, "run", folder, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "400"},
    )
    assert 1 == ended.returncode, ended.stderr
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: rank")]
    assert 1 == len(errors)
    assert re.search(message, errors[0]), errors[0]
    assert "Traceback" not in ended.stderr
