"""How long after the loss of a board the next result comes, and what jobs that wait cost.

Three virtual boards compute a chain, frames come at 20 a second, and one board is lost, at each
position and in each way. All frames must come out, once and in order. The job that takes over is
started when the board is lost, or with ``--standby`` is loaded beforehand.

    python benchmarks/survival.py [--runs N]
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
from across_boards import Boards, exit_without_boards
from timing import spread

import rankslice

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from boards import Board
from boards.deployments import deploy, survivable_chain
from boards.losses import LOSSES

FPS = 20
FRAMES, STRUCK_AT = 140, 40
SETTLED_S, IDLE_S = 4.0, 5.0


def ticks(rack: Boards) -> dict[int, int]:
    """Return the processor time of each rank, in ticks."""
    seconds = {}
    for process in itertools.chain.from_iterable(board.processes() for board in rack):
        folder = Path(f"/proc/{process}")
        if b"driver.py\0--input" in (folder / "cmdline").read_bytes():
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            seconds[process] = int(fields[11]) + int(fields[12])
    return seconds


def idle_shares(rack: Boards) -> list[float]:
    """Return the share of a core, in percent, that each rank takes while no frame comes."""
    before, begin = ticks(rack), time.monotonic()
    time.sleep(IDLE_S)
    per_s = os.sysconf("SC_CLK_TCK") * (time.monotonic() - begin)
    return [100 * (count - before[rank]) / per_s for rank, count in ticks(rack).items()]


def gap_s(
    rack: Boards, out: Path, loss: str, board: Board, shares: list[float], *, standby: bool
) -> float:
    """Lose a board while frames come; return the longest time from the loss without a result."""
    order: list[int] = []
    times: list[float] = []

    def take(number: int, future: Future[object]) -> None:
        assert future.exception() is None, future.exception()
        order.append(number)
        times.append(time.monotonic())

    with rankslice.open(out, survive=True, standby=standby, ssh_config=rack.ssh_config) as pipeline:
        frame = np.zeros(pipeline.inputs[0].shape, np.float32)
        time.sleep(SETTLED_S if standby else 0)
        if standby:
            shares += idle_shares(rack)
        begin, struck = time.monotonic(), 0.0
        try:
            for number in range(FRAMES):
                time.sleep(max(0.0, begin + number / FPS - time.monotonic()))
                if number == STRUCK_AT:
                    struck = time.monotonic()
                    LOSSES[loss].strike(board)
                pipeline.submit(frame).add_done_callback(
                    lambda future, number=number: take(number, future)
                )
            pipeline.close()
        finally:
            LOSSES[loss].mend(board)
    assert order == list(range(FRAMES))
    assert pipeline.restarts == 1
    return float(max(np.diff([struck, *(at for at in times if at > struck)])))


def main() -> None:
    """Lose each board in each way, and print how long the next result took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1, help="for each loss and position")
    runs = parser.parse_args().runs
    exit_without_boards()
    shares: list[float] = []
    with Boards(3, disk_mb=64) as rack, tempfile.TemporaryDirectory() as folder:
        out = survivable_chain(rack, Path(folder))
        assert deploy(rack, out).code == 0
        print("seconds from the loss to the next result: median (95 %), all positions")
        for loss in LOSSES:
            texts = []
            for standby in (False, True):
                gaps = [
                    gap_s(rack, out, loss, board, shares, standby=standby)
                    for board in list(rack) * runs
                ]
                texts.append(spread(gaps).text(1))
            print(f"{loss:14}{texts[0]:24}with --standby {texts[1]}", flush=True)
    print(f"a rank that waits takes {spread(shares).text(1)} % of a core")


if __name__ == "__main__":
    main()
