"""Frequencies that a board's agent sets, on folders that look like /sys has them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from clock_trees import CPUFREQ, limits_of, put_policy

from rankslice.backend.agent.jobs import hold_frequencies as program
from rankslice.backend.agent.jobs.folders import RefusedError
from rankslice.backend.agent.jobs.hold_frequencies import Policy, hold_frequencies
from rankslice.backend.agent.protocol import MARK

LITTLE, BIG = (600_000, 1_200_000, 1_800_000), (1_200_000, 1_800_000, 2_400_000)
BEFORE = (600_000, 1_800_000)

AGENT = """
import json, sys
from pathlib import Path
from rankslice.backend.agent.jobs import co_run
from rankslice.backend.agent.jobs.hold_frequencies import hold_frequencies
co_run.SILENCE_S = float(sys.argv[3])
hold_frequencies(json.loads(sys.argv[2]), Path(sys.argv[1]))
"""

LAUNCHER = """
import sys, time
from rankslice.backend.boards.answers import HeldFrequency
from rankslice.backend.boards.remote_process import RemoteProcess
with RemoteProcess(sys.argv[1:], "here") as agent:
    agent.ask(HeldFrequency, 30)
    agent.write(b"1200000\\n")
    agent.ask(HeldFrequency, 30)
    print("is set", flush=True)
    time.sleep(100)
"""


def agent_line(root: Path, *, silence_s: float = 10.0) -> list[str]:
    request = {"khz": [1_200_000, 1_800_000], "cores": [0]}
    return [sys.executable, "-c", AGENT, str(root), json.dumps(request), str(silence_s)]


@contextmanager
def agent(root: Path, *, silence_s: float = 10.0) -> Iterator[subprocess.Popen[str]]:
    line, pipe = agent_line(root, silence_s=silence_s), subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as process:
        assert {"khz": 0} == said_by(process)
        yield process
        process.kill()


def said_by(process: subprocess.Popen[str]) -> object:
    assert process.stdout is not None
    return json.loads(process.stdout.readline().removeprefix(MARK))


def ask(process: subprocess.Popen[str], khz: int) -> object:
    assert process.stdin is not None
    process.stdin.write(f"\n{khz}\n")
    process.stdin.flush()
    return said_by(process)


def comes(happens: Callable[[], bool], within_s: float = 10.0) -> bool:
    end = time.monotonic() + within_s
    while not happens() and time.monotonic() < end:
        time.sleep(0.01)
    return happens()


@pytest.mark.parametrize("limits", [(600, 900), (900, 900), (1500, 1800), (600, 1800), (900, 1500)])
@pytest.mark.parametrize("wanted", [(600, 600), (1200, 1200), (1800, 1800), (600, 1800)])
def test_the_lower_limit_is_never_above_the_upper_one(
    limits: tuple[int, int],
    wanted: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = put_policy(tmp_path, (0,), LITTLE, limits=limits)
    policy, write = Policy(path), Path.write_text

    def write_and_look(file: Path, text: str) -> int:
        count = write(file, text)
        low, high = limits_of(path)
        assert low <= high
        return count

    monkeypatch.setattr(Path, "write_text", write_and_look)
    policy.limit(*wanted)
    assert wanted == limits_of(path)


def test_clocks_follow_if_they_offer_the_frequency_and_are_restored(tmp_path: Path) -> None:
    little = put_policy(tmp_path, (0, 1), LITTLE, limits=(600_000, 1_200_000))
    big = put_policy(tmp_path, (4, 5), BIG)
    other = put_policy(tmp_path, (7,), (2_000_000, 2_700_000), has_steps=False)
    with agent(tmp_path) as process:
        for khz in (1_800_000, 1_200_000):
            assert {"khz": khz} == ask(process, khz)
            assert [(khz, khz)] * 2 == [limits_of(little), limits_of(big)]
            assert (2_000_000, 2_700_000) == limits_of(other)
        assert process.stdin is not None
        process.stdin.close()
        assert {"khz": 0} == said_by(process)
        assert (600_000, 1_200_000) == limits_of(little)
        assert (1_200_000, 2_400_000) == limits_of(big)
        assert 0 == process.wait(10)


def test_a_launcher_that_is_killed_leaves_the_clocks_as_they_were(tmp_path: Path) -> None:
    policy = put_policy(tmp_path, (0, 1), LITTLE)
    line = [sys.executable, "-c", LAUNCHER, *agent_line(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert "is set\n" == launcher.stdout.readline()
        assert (1_200_000, 1_200_000) == limits_of(policy)
        launcher.kill()
    assert comes(lambda: limits_of(policy) == BEFORE, within_s=5)


def test_a_launcher_that_falls_silent_is_lost(tmp_path: Path) -> None:
    policy = put_policy(tmp_path, (0, 1), LITTLE)
    with agent(tmp_path, silence_s=0.5) as process:
        assert {"khz": 1_200_000} == ask(process, 1_200_000)
        answer = said_by(process)
        assert isinstance(answer, dict)
        assert "heard nothing from the launcher" in answer["error"]
        assert {"khz": 0} == said_by(process)
        assert limits_of(policy) == BEFORE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("kills", ["both", "the one that sets"])
def test_no_signal_leaves_the_clocks_set(tmp_path: Path, number: int, kills: str) -> None:
    policy = put_policy(tmp_path, (0, 1), LITTLE)
    with agent(tmp_path) as process:
        assert {"khz": 1_200_000} == ask(process, 1_200_000)
        (setter,) = psutil.Process(process.pid).children()
        setter.send_signal(number)
        if kills == "both" and number != signal.SIGKILL:
            process.send_signal(number)
        assert comes(lambda: limits_of(policy) == BEFORE)


def test_the_agent_may_be_killed_with_its_session(tmp_path: Path) -> None:
    policy = put_policy(tmp_path, (0, 1), LITTLE)
    line, pipe = agent_line(tmp_path), subprocess.PIPE
    with subprocess.Popen(
        line, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        assert {"khz": 0} == said_by(process)
        assert {"khz": 1_200_000} == ask(process, 1_200_000)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert (1_200_000, 1_200_000) == limits_of(policy)
        assert process.stdin is not None
        process.stdin.close()
        assert comes(lambda: limits_of(policy) == BEFORE)


def test_a_second_benchmark_is_refused_until_the_first_one_has_ended(tmp_path: Path) -> None:
    put_policy(tmp_path, (0, 1), LITTLE)
    request = {"khz": [1_200_000], "cores": [0]}
    with agent(tmp_path), pytest.raises(RefusedError, match="another benchmark sets"):
        hold_frequencies(request, tmp_path)


def hot(root: Path) -> None:
    put_policy(root, (0, 1), LITTLE)
    device = root / "sys/class/thermal/cooling_device0"
    device.mkdir(parents=True)
    (device / "type").write_text("thermal-cpufreq-0\n")
    (device / "cur_state").write_text("2\n")


@pytest.mark.parametrize(
    ("make", "cores", "message"),
    [
        (lambda root: (root / CPUFREQ).mkdir(parents=True), [0], "has no clocks, as in virtual"),
        (
            lambda root: put_policy(root, (0, 1), (600_000, 1_800_000)),
            [1],
            r"cores 0 1 \(policy0\) have no frequency of 1200 MHz; they have 600, 1800 MHz",
        ),
        (
            lambda root: put_policy(root, (4,), (1_500_000, 2_400_000), has_steps=False),
            [4],
            "have no frequency of 1200 MHz; they have 1500 to 2400 MHz",
        ),
        (hot, [0], r"too hot \(thermal-cpufreq-0\)"),
    ],
    ids=["no clocks", "other steps", "another range", "hot"],
)
def test_what_cannot_be_set_is_refused_before_anything_changes(
    make: Callable[[Path], object], cores: list[int], message: str, tmp_path: Path
) -> None:
    make(tmp_path)
    policies = sorted((tmp_path / CPUFREQ).glob("policy*"))
    before = [*map(limits_of, policies)]
    with pytest.raises(RefusedError, match=message):
        hold_frequencies({"khz": [1_200_000, 1_800_000], "cores": cores}, tmp_path)
    assert before == [*map(limits_of, policies)]


def test_who_may_not_write_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put_policy(tmp_path, (0, 1), LITTLE) / "scaling_min_freq"
    monkeypatch.setattr(program.os, "access", lambda *asked: False)  # root may write all files
    with pytest.raises(RefusedError, match=re.escape(f"{path} cannot be written; --frequency")):
        hold_frequencies({"khz": [1_200_000], "cores": [0]}, tmp_path)
