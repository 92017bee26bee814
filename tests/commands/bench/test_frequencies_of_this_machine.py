"""``rankslice bench --frequency`` with clocks that are made in a mount namespace."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import clock_trees
import pytest
from clock_trees import CPUFREQ, limits_of
from command_line import COMMAND
from real_jobs import chain_folder, let_ranks_sleep

pytestmark = pytest.mark.ci

STEPS = (600_000, 1_200_000, 1_800_000)
WITHIN_S = 30.0

MAKE_TREE = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from clock_trees import put_policy
policy = put_policy(Path("/"), (0, *range(1, 512)), (600_000, 1_200_000, 1_800_000))
(policy / "scaling_cur_freq").symlink_to("scaling_max_freq")
print("is made", flush=True)
sys.stdin.read()
"""


class Clocks:
    """A mount namespace with clocks, as long as its process lives."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def limits(self) -> tuple[int, ...]:
        return limits_of(Path(f"/proc/{self._process.pid}/root/{CPUFREQ}/policy0"))

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start the command there; ``nsenter`` becomes it.

        The tests may run under ``nohup``, and the command ends with its terminal all the same.
        """
        line = ["nsenter", "--mount", f"--target={self._process.pid}", "--wd=.", *COMMAND]
        return subprocess.Popen(
            [*line, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )

    def come_to(self, limits: Sequence[int]) -> bool:
        end = time.monotonic() + WITHIN_S
        while self.limits != limits and time.monotonic() < end:
            time.sleep(0.05)
        return self.limits == limits


@pytest.fixture
def clocks() -> Iterator[Clocks]:
    tree = f'mount -t tmpfs tmpfs /{CPUFREQ} && exec "$@"'
    make = [sys.executable, "-c", MAKE_TREE, Path(clock_trees.__file__).parent]
    line = ["unshare", "--mount", "sh", "-c", tree, "sh", *make]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "is made\n":
            _, errors = process.communicate()
            pytest.skip(f"needs root, a mount namespace, and /{CPUFREQ} to mount over: {errors}")
        yield Clocks(process)
        process.kill()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("frequencies"), 1), 3.0)


def test_figures_are_told_by_frequency_and_the_clocks_are_as_before(
    out: Path, clocks: Clocks, tmp_path: Path
) -> None:
    table, figures = tmp_path / "f.csv", tmp_path / "f.json"
    options = ("--frequency", "1.2G,600M", "--starts", "1", "--frames", "600", "--fps", "200")
    with clocks.start("bench", out, *options, "--csv", table, "--json", figures) as bench:
        shown, errors = bench.communicate()
    assert 0 == bench.returncode, errors
    assert (600_000, 1_800_000) == clocks.limits
    assert "by frequency" in shown
    found = json.loads(figures.read_text())["frequencies"]
    for mhz, one in zip((600, 1200), found, strict=True):
        assert [mhz] * 3 == [one[of] for of in ("frequency_mhz", "limit_mhz", "measured_mhz")]
        assert one["throughput_fps"]["value"] == pytest.approx(200, rel=0.1)
        assert one["mean_ns"]["value"] > 3e6
    assert ["600.0", "1200.0"] == [
        row["frequency_mhz"] for row in csv.DictReader(table.read_text().splitlines())
    ]
    page = (out / "bench.html").read_text()
    assert "latency over frequency" in page
    assert "schedutil from 600 to 1800 MHz" in page


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_the_clocks_are_as_before_however_the_command_ends(
    out: Path, clocks: Clocks, number: int
) -> None:
    options = ("--frequency", "1.2G", "--starts", "9", "--frames", "6000", "--fps", "200")
    with clocks.start("bench", out, *options) as bench:
        assert clocks.come_to((1_200_000, 1_200_000))
        time.sleep(1.0)  # the job runs
        bench.send_signal(number)
        assert clocks.come_to((600_000, 1_800_000))
        bench.kill()


def test_a_frequency_that_the_processor_lacks_is_refused_by_name(out: Path, clocks: Clocks) -> None:
    with clocks.start("bench", out, "--frequency", "1.2G,1.3G") as bench:
        _, errors = bench.communicate()
    assert 1 == bench.returncode
    assert "(policy0) have no frequency of 1300 MHz; they have 600, 1200, 1800 MHz" in errors
    assert (600_000, 1_800_000) == clocks.limits
