"""What sampling a board and its ranks once a second costs, in processor time of one core.

The board is a folder that looks like ``/sys`` and ``/proc`` of one with so many cores and zones;
the files of this machine are added (``--here``: they alone). Ranks have rings in which so many
events a second come in.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from timing import console, machine, print_table, spread

from rankslice.backend.runtime.figures.events import (
    COMPUTE,
    FRAME,
    READ,
    WAIT,
    EventRing,
    open_ring,
)
from rankslice.backend.runtime.figures.sampling import Sampler

LIMIT = 0.5
"""Per cent of a core."""
BOARDS = {
    # cores, thermal zones, ranks, frames a second
    "8 cores, 40 zones, 2 ranks, 30 frames/s": (8, 40, 2, 30),
    "8 cores, 40 zones, 8 ranks, 30 frames/s": (8, 40, 8, 30),
    "128 cores, 2 zones, 8 ranks, 100 frames/s": (128, 2, 8, 100),
    "8 cores, 40 zones, 2 ranks, 2000 frames/s": (8, 40, 2, 2000),
}


def put(folder: Path, **files: str | int) -> None:
    """Write files of the system."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")


def make_board(root: Path, cores: int, zones: int, ranks: int) -> None:
    """Make a folder that looks like the system of a board."""
    for core in range(cores):
        cpu = root / "sys/devices/system/cpu"
        put(cpu / f"cpufreq/policy{core}", scaling_cur_freq=2_000_000 + core)
        put(cpu / f"cpu{core}/thermal_throttle", core_throttle_count=0, package_throttle_count=0)
        put(cpu / f"cpu{core}/topology", physical_package_id=core // 64)
        thermal = root / "sys/class/thermal"
        put(thermal / f"cooling_device{core}", type=f"thermal-cpufreq-{core}", cur_state=0)
    for zone in range(zones):
        put(thermal / f"thermal_zone{zone}", type=f"zone{zone}-thermal", temp=45_000 + zone)
    put(root / "sys/class/hwmon/hwmon0", name="ina3221", in1_label="VDD_IN", in1_input=5000)
    put(root / "sys/class/hwmon/hwmon0", curr1_input=900)
    put(root / "proc", meminfo="MemTotal: 8000000 kB\nMemAvailable: 5000000 kB")
    fields = " ".join(["S", *["7"] * 40])
    for rank in range(ranks):
        put(root / "proc" / str(1000 + rank), stat=f"1 (python3) {fields}")


def work(rings: list[EventRing], frames: Iterator[int], fps: int, second: float) -> None:
    """Add the events of one second: in each rank two segments and a wait for each frame."""
    for frame in (next(frames) for _ in range(fps)):
        begin = second + frame % fps / fps
        for ring in rings:
            ring.add(COMPUTE, begin, begin + 0.2 / fps, frame)
            ring.add(COMPUTE, begin + 0.2 / fps, begin + 0.4 / fps, frame, 1)
            ring.add(WAIT, begin + 0.4 / fps, begin + 1 / fps, -1)
        rings[0].add(READ, begin, begin + 0.1 / fps, frame, thread=1)
        rings[0].add(FRAME, begin, begin + 0.9 / fps, frame)


def shares(board: tuple[int, int, int, int] | None, samples: int) -> list[float]:
    """Return the processor time of each of some samples, in per cent of a second."""
    percents = []
    with tempfile.TemporaryDirectory(prefix="rankslice-") as name, ExitStack() as stack:
        root, session = Path(name) / "board", Path(name) / "session"
        session.mkdir()
        cores, zones, ranks, fps = board or (0, 0, 2, 30)
        rings = [open_ring(session, rank) for rank in range(ranks)]
        for rank, ring in enumerate(rings):
            ring.describe(process=1000 + rank if board else os.getpid(), helpers=[])
        if board is not None:
            make_board(root, cores, zones, ranks)
        sampler = stack.enter_context(closing(Sampler(session, root if board else Path("/"))))
        frames = iter(range(1 << 62))
        begin = time.monotonic() - samples - 1
        for second in range(samples + 1):
            work(rings, frames, fps, begin + second)
            before = time.thread_time()
            sampler.sample()
            percents.append(100 * (time.thread_time() - before))
    return percents[1:]


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=30, help="of each board")
    parser.add_argument("--here", action="store_true", help="this machine alone")
    options = parser.parse_args()
    console.print(machine())
    boards = {} if options.here else BOARDS
    rows = [
        (name, spread(shares(board, options.samples)).text(3)) for name, board in boards.items()
    ]
    rows.append(("this machine, 2 ranks", spread(shares(None, options.samples)).text(3)))
    title = f"A sample a second, per cent of a core (at most {LIMIT} is wanted)"
    print_table(title, ("board", "median (range)"), rows)


if __name__ == "__main__":
    main()
