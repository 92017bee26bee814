"""What a job on one board keeps in memory: channels through shared rings, and through MPI.

The sum over its ranks of their proportional set size (PSS) once frames flow; the resident size
would count shared pages once for each rank. The job runs as it is and with ``--no-direct``, in
turn.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pipeline_efficiency import ENDLESS, pipeline
from timing import console, in_turns, machine, print_table, spread
from window_of_one import build_slices

from rankslice.backend.runtime.options import RunOptions
from rankslice.session.run import prepare

CASES = (("squeezenet", 2), ("resnet50", 2), ("resnet50", 4))


def memory_mb(folder: Path, frames: Path, *, direct: bool) -> float:
    """Return the ranks' memory in 10^6 bytes, while a job runs."""
    wanted = RunOptions(inputs=(str(frames),), frames=ENDLESS, direct=direct)
    results = folder / "memory.bin"
    results.unlink(missing_ok=True)  # frames of an earlier run would be taken for this one's
    with pipeline("job", prepare(folder, wanted, results=results)) as job:
        return sum(float(rank.memory_full_info().pss) for rank in job.workers) / 1e6


def measure(
    cases: Sequence[tuple[str, int]], rounds: int
) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Return megabytes of each network over each number of ranks: direct, and through MPI."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
        built = {}
        for network, ranks in cases:
            place = Path(folder) / f"{network}-{ranks}"
            place.mkdir()
            built[network, ranks] = build_slices(place, network, ranks)
        jobs = {
            case: partial(both_mb, done.folder, frames) for case, (done, frames) in built.items()
        }
        return in_turns(rounds, jobs)


def both_mb(folder: Path, frames: Path) -> tuple[float, float]:
    return memory_mb(folder, frames, direct=True), memory_mb(folder, frames, direct=False)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each")
    console.print(machine())
    rows = [
        (
            f"{network}, {ranks} ranks",
            *(spread(values).text(1) for values in zip(*pairs, strict=True)),
            spread(old - direct for direct, old in pairs).text(1),
        )
        for (network, ranks), pairs in measure(CASES, parser.parse_args().rounds).items()
    ]
    print_table("Sum of the ranks' PSS, MB", ("", "job", "--no-direct", "less by"), rows)


if __name__ == "__main__":
    main()
