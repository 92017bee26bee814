"""Let a reader meet many damaged files, in a process with little memory.

``python tests/fuzz/campaign.py model --examples 1000``; it prints the smallest file that does harm.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NoReturn

from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from targets import KERAS_TARGETS, TARGETS, Target, edited, meet, pieces

MEMORY = 1 << 30
"""Bytes that a reader may have in addition to what the process has."""

SECONDS = 20.0
"""Processor time that one file may take; a second is much."""


def damaged(target: Target) -> st.SearchStrategy[bytes]:
    """Return good files with some edits, cut short, or any bytes at all."""
    piece = st.sampled_from(pieces(target)) | st.binary(max_size=8)
    edit = st.tuples(st.integers(0, 1 << 16), st.integers(0, 40), piece)
    edits = st.builds(edited, st.sampled_from(target.seeds), st.lists(edit, max_size=6))
    cut = st.builds(
        lambda whole, end: whole[: end % (len(whole) + 1)], edits, st.integers(0, 1 << 16)
    )
    return edits | cut | st.binary(max_size=200)


def limit_memory() -> None:
    """Let the process have little more memory than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def out_of_time(number: int, frame: FrameType | None) -> NoReturn:
    """End an example that computes for too long."""
    raise TimeoutError(f"{SECONDS} s of processor time are over")


def run(target: Target, examples: int, start: int) -> None:
    """Let a reader meet this many files; raise what it raises for the smallest bad one."""
    signal.signal(signal.SIGVTALRM, out_of_time)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for good in target.seeds:
            (folder / target.file).write_bytes(good)
            target.read(folder / target.file)
        limit_memory()

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        @seed(start)
        @given(damaged(target))
        def campaign(content: bytes) -> None:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                meet(target, folder, content)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)

        campaign()


def main() -> None:
    """Take the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, *KERAS_TARGETS])
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given_options = parser.parse_args()
    run((TARGETS | KERAS_TARGETS)[given_options.target], given_options.examples, given_options.seed)


if __name__ == "__main__":
    sys.exit(main())
