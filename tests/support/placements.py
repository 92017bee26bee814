"""Places for ranks, for tests that need no platform."""

from rankslice.backend.runtime.job import Rank


def placements(*keys: str) -> tuple[Rank, ...]:
    """Return a rank for each key ``<board>_cpu<core>``: one core each."""
    return tuple(
        Rank(
            rank=rank,
            key=key,
            board=key.rpartition("_")[0],
            host=key.rpartition("_")[0],
            accelerator="cpu",
            cores=(rank,),
            engine="onnxruntime",
        )
        for rank, key in enumerate(keys)
    )


def many_placements(count: int) -> tuple[Rank, ...]:
    """Return that many ranks on one board."""
    return placements(*(f"board_cpu{rank}" for rank in range(count)))
