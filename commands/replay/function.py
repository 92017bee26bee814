"""``rankslice.replay``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankslice.commands.arguments import Natural, check_least, checked, path_of
from rankslice.commands.replay.replay import Replayed, replay as replay_recorded


@checked
def replay(
    folder: str | Path,
    rank: Natural,
    *,
    engine: str | None = None,
    frames: Sequence[int] | None = None,
    build: str | Path | None = None,
) -> Replayed:
    """Run one rank alone on the tensors of a recorded run, and compare what it makes.

    Args:
        folder: made by ``run`` with ``record``.
        rank: number of the rank.
        engine: instead of the rank's own, on CPU cores.
        frames: numbers of frames; all recorded ones by default.
        build: a build folder whose sub-models run instead of the recorded ones.

    Raises:
        RankSliceError: the folder is no recording, or the rank cannot be run here.
    """
    check_least(0, (("frames", frame) for frame in frames or ()))
    return replay_recorded(Path(folder), rank, engine=engine, frames=frames, build=path_of(build))
