"""A frame's way through a rank is short: it is measured in calls, which no machine makes slower."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from counted_calls import calls_per_frame, count_calls
from real_jobs import digits_folder

from rankslice.backend.runtime.options import RunOptions
from rankslice.session.run import prepare, run

FRAMES = 800
MOST = {"python": 40, "c": 45}
"""Calls of functions per frame and rank, all threads together."""
TRIES = 3
"""A wait takes calls, too, and how many frames a rank waits for depends on the machine."""


@pytest.mark.ci
@pytest.mark.parametrize("window", [None, 1], ids=["the usual window", "a wait for every frame"])
def test_a_frame_takes_few_calls_on_the_first_and_the_last_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    folder, frames = digits_folder(tmp_path), tmp_path / "frames.npy"
    count_calls(folder)
    np.save(frames, np.zeros((64, 1, 8, 8), np.float32))
    monkeypatch.setenv("RANKSLICE_CALLS", f"{tmp_path}/calls-")
    for _ in range(TRIES):
        run(prepare(folder, RunOptions(inputs=(str(frames),), frames=FRAMES, window=window)))
        found = {}
        for rank in (0, 1):
            calls = calls_per_frame(f"{tmp_path}/calls-", rank)
            for kind, most in MOST.items():
                found[rank, kind] = sum(calls[key] for key in calls if key[0] == kind)
                assert found[rank, kind] > most / 4
        if all(found[rank, kind] <= most for kind, most in MOST.items() for rank in (0, 1)):
            return
    pytest.fail(f"calls per frame, by rank and kind: {found}")
