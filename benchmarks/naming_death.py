"""How long it takes until a killed rank is named, beside a watchdog that only looks each 0.1 s.

Jobs of two ranks run the digit classifier as fast as they can, which keeps both cores busy. One of
the ranks is killed at a random moment, and the time counts until this program, in the place of the
board's watch, has the watchdog's message. In every second job the watchdog lacks descriptors of
processes (`os.pidfd_open`), so that it only looks. With each kill it is also measured what the
kernel takes to report the death, by a bare poll of this program, and when mpirun has passed on the
message: once it has seen the death, too, it passes on nothing for a quarter of a second.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from timing import console, in_turns, machine, print_table

from rankslice.backend.runtime.faults.private_folder import in_memory
from rankslice.backend.runtime.faults.watchdog import MESSAGES, SESSION
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.temporary import temporary_folder
from rankslice.session.building.build import build
from rankslice.session.prepare import prepare

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "models" / "digits.onnx"
MAPPING = ROOT / "mappings" / "digits-two-ranks.json"
RANKS = 2
OPENS = "os.pidfd_open(self.number)"
"""In the watchdog's code."""
NAMED = b"the process was killed or crashed"
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Kill:
    """When a kill was noticed, in milliseconds after it."""

    kernel_ms: float
    named_ms: float
    passed_on_ms: float


def build_folders(place: Path) -> dict[str, Path]:
    """Return two build folders: as they are, and with a watchdog that can only look."""
    usual, looking = place / "usual", place / "looking"
    build(MODEL, MAPPING, "local", usual)
    shutil.copytree(usual, looking)
    code = looking / "runtime" / "faults" / "watched_process.py"
    text = code.read_text()
    assert text.count(OPENS) == 1
    code.unlink()  # a package may share the file
    code.write_text(text.replace(OPENS, "os.none"))
    return {"by descriptors": usual, "by looks": looking}


def kill_in(folder: Path) -> Kill:
    """Start a job, kill one of its ranks, and wait for the message."""
    options = RunOptions(inputs=("random",), frames=10_000_000)
    with (
        tempfile.TemporaryDirectory(prefix="rankslice-") as place,
        temporary_folder(in_memory()) as session,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as watch,
        subprocess.Popen(
            prepare(folder, options).command_in(Path(place)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, SESSION: str(session.path)},
        ) as mpirun,
    ):
        try:
            watch.bind(str(session.path / MESSAGES))
            ranks = _running(mpirun)
            time.sleep(random.uniform(0.3, 0.5))
            return _kill(random.choice(ranks), mpirun, watch)
        finally:
            mpirun.terminate()
            with suppress(subprocess.TimeoutExpired):
                mpirun.communicate(timeout=PATIENCE_S)


def _running(mpirun: subprocess.Popen[bytes]) -> list[int]:
    """Return the ranks' process numbers once frames have come out."""
    assert mpirun.stdout is not None
    line = mpirun.stdout.readline()
    assert line.startswith(b"completed"), line
    children = Path(f"/proc/{mpirun.pid}/task/{mpirun.pid}/children").read_text().split()
    assert len(children) == RANKS
    return [int(child) for child in children]


def _kill(victim: int, mpirun: subprocess.Popen[bytes], watch: socket.socket) -> Kill:
    """Kill a rank; return when its death is reported, when it is named, and when mpirun says so."""
    assert mpirun.stderr is not None
    handle = os.pidfd_open(victim)
    events = select.poll()
    sources = {handle: b"", watch.fileno(): b"", mpirun.stderr.fileno(): b""}
    for source in sources:
        events.register(source, select.POLLIN)
    began = time.monotonic()
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    times_ms: dict[int, float] = {}
    while len(times_ms) < len(sources):
        for source, _ in events.poll(1e3 * PATIENCE_S):
            if source != handle:
                sources[source] += os.read(source, 1 << 16)
            if source == handle or NAMED in sources[source]:
                times_ms[source] = 1e3 * (time.monotonic() - began)
                events.unregister(source)
    os.close(handle)
    return Kill(*(times_ms[source] for source in sources))


def row(name: str, seconds: Sequence[float]) -> tuple[str, ...]:
    """Return the row of a table: the distribution of some times."""
    levels = np.percentile(seconds, (50, 90, 99, 100))
    return (name, str(len(seconds)), *(f"{level:.1f}" for level in levels))


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="how many ranks are killed each way")
    args = parser.parse_args()
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as place:
        folders = build_folders(Path(place))
        kills = {name: partial(kill_in, folder) for name, folder in folders.items()}
        results = in_turns(args.kills, kills)
    every = [kill for kills in results.values() for kill in kills]
    rows = [row(f"named {name}", [kill.named_ms for kill in results[name]]) for name in results]
    rows += [
        row(f"{name}, passed on by mpirun", [kill.passed_on_ms for kill in results[name]])
        for name in results
    ]
    print_table(
        "milliseconds after SIGKILL",
        ("", "kills", "median", "90 %", "99 %", "most"),
        [*rows, row("a bare poll of its descriptor", [kill.kernel_ms for kill in every])],
    )


if __name__ == "__main__":
    sys.exit(main())
