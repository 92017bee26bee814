"""Why there is no pipeline: which limit is in the way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from rankslice.exploration.planner.chain import Chain
from rankslice.exploration.planner.plans import bottleneck_s
from rankslice.exploration.planner.solve import Found, can_be_placed, fastest
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.quantities import bytes_text
from rankslice.framework.wording import joined

__all__ = ["Limit", "NoPlanError", "no_plan"]

Limit = Literal["layers", "memory", "links", "devices", "throughput", "steps"]


class NoPlanError(RankSliceError):
    """There is no pipeline that keeps all limits."""

    def __init__(self, limit: Limit, *mistakes: Mistake) -> None:
        """Take what is in the way, and how to tell it."""
        super().__init__(*mistakes)
        self.limit = limit
        """``layers``: some can run nowhere. ``memory``: without its limits there is a pipeline.
        ``links``: likewise. ``devices``: too few of those that can run some layers.
        ``throughput``: the floor is above what can be reached. ``steps``: none was found in so
        many steps, and it is not proven that there is none."""


def no_plan(chain: Chain, found: Found, period_s: float, most_steps: int) -> NoPlanError:
    """Return why there is no pipeline.

    Args:
        chain: what was to be placed.
        found: what was found: nothing, or nothing that is fast enough.
        period_s: most time between two frames.
        most_steps: that the search was granted.
    """
    if not found.proven and not found.plan:
        return _out_of_steps(most_steps)
    best = found if found.plan else fastest(chain, most_steps)
    if best.plan and math.isfinite(period_s):
        return _too_slow(chain, best, period_s)
    if lonely := list(_lonely_layers(chain)):
        return NoPlanError("layers", *lonely)
    return _limit_in_the_way(chain)


def _out_of_steps(most_steps: int) -> NoPlanError:
    found = f"in {most_steps} steps no pipeline was found, and it is not proven that there is none"
    return NoPlanError("steps", Mistake("most_steps", found, "grant more"))


def _too_slow(chain: Chain, best: Found, period_s: float) -> NoPlanError:
    """Tell how fast a pipeline can be; or, if that is not certain, how fast one was found."""
    reached = 1 / bottleneck_s(chain, best.plan)
    if best.bound <= period_s:
        text = f"the fastest pipeline that was found reaches {reached:.6g} frames/s, not proven"
        return NoPlanError("steps", Mistake("throughput_floor_fps", text, "grant more most_steps"))
    found = f"{1 / period_s:.6g} frames/s cannot be reached"
    return NoPlanError(
        "throughput",
        Mistake("throughput_floor_fps", found, f"the fastest pipeline reaches {reached:.6g}"),
    )


def _lonely_layers(chain: Chain) -> Iterator[Mistake]:
    """Yield the layers that no device can run, or that fit into none's memory."""
    kinds = [kind for kind, _, _ in chain.types]
    for layer in np.flatnonzero(np.isinf(chain.times_s[kinds]).all(axis=0)).tolist():
        yield Mistake(
            f"layer {layer}", "no device can run it", "expected a finite time of one kind"
        )


def _limit_in_the_way(chain: Chain) -> NoPlanError:
    """Tell the first limit without which there is a pipeline."""
    roomy = replace(chain, capacity_bytes=(math.inf,) * len(chain.boards))
    if can_be_placed(roomy):
        return NoPlanError("memory", *_memory_mistakes(chain))
    linked = replace(roomy, link_s=np.where(chain.link_s < math.inf, chain.link_s, 0.0))
    linked.link_s[:-1, [0, -1]] = math.inf
    if can_be_placed(linked):
        found = "every pipeline sends over a link without bandwidth"
        return NoPlanError("links", Mistake("bandwidth_bytes_s", found, "expected more than 0"))
    able = f"the layers change {_changes(chain)} times between kinds that can run them"
    found = f"{len(chain.devices)} devices are too few, or of the wrong kinds"
    return NoPlanError("devices", Mistake("devices", found, able))


def _memory_mistakes(chain: Chain) -> Iterator[Mistake]:
    """Yield the layers that fit nowhere even alone; without such, the sums of both sides."""
    alone = np.array([np.diagonal(fits, 1) for fits in chain.fits])
    tight = np.flatnonzero(~alone.any(axis=0)).tolist()
    for layer in tight:
        needs = min(
            float(table[layer, layer + 1])
            for table, span in zip(chain.span_bytes, chain.span_s, strict=True)
            if math.isfinite(span[layer, layer + 1])
        )
        yield Mistake(
            f"layer {layer}",
            f"takes {bytes_text(round(needs))} of memory",
            f"the boards that can run it have less: {_memories(chain)}",
        )
    if not tight:
        needs = float(chain.memory_bytes.min(axis=0).sum()) if chain.memory_bytes.ndim == 2 else 0
        found = "the layers do not fit into the boards' memory"
        total = f"; the layers take {bytes_text(round(needs))} without buffers" if needs else ""
        yield Mistake("memory_bytes", found, f"there are {_memories(chain)}{total}")


def _memories(chain: Chain) -> str:
    sizes = sorted(set(chain.capacity_bytes))
    counted = [
        f"{chain.capacity_bytes.count(size)} x "
        + ("no limit" if math.isinf(size) else bytes_text(round(size)))
        for size in sizes
    ]
    return joined(counted)


def _changes(chain: Chain) -> int:
    """Return how often no kind that runs the layers so far runs the next one too, at least."""
    able = np.isfinite(chain.times_s[sorted({kind for kind, _, _ in chain.types})])
    changes, still = 0, able[:, 0]
    for layer in able.T:
        if not (still & layer).any():
            changes, still = changes + 1, layer
        still = still & layer
    return changes
