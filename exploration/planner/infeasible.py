"""Why there is no pipeline: the limit that rules it out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from rankslice.exploration.planner.chain import Chain, Flags, Floats
from rankslice.exploration.planner.solver import Solution, fastest, is_feasible
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import bytes_text, joined

Limit = Literal["layers", "memory", "links", "cuts", "devices", "throughput", "steps"]


class NoPlanError(RankSliceError):
    """No pipeline keeps all limits."""

    def __init__(self, limit: Limit, *mistakes: Mistake) -> None:
        super().__init__(*mistakes)
        self.limit = limit
        """``layers``: some can run nowhere, or in no slices that make a whole. ``memory``: without
        its limits there is a pipeline. ``links``: likewise. ``cuts``: likewise, of those that
        infinite bytes forbid. ``devices``: too few of those that can run some layers.
        ``throughput``: the floor is above what can be reached. ``steps``: none was found in so
        many steps, and it is not proven that there is none."""


def why_infeasible(
    chain: Chain, solution: Solution, period_s: float, most_steps: int
) -> NoPlanError:
    if not solution.proven and not solution.plan:
        text = "steps no pipeline was found, and it is not proven that there is none"
        return NoPlanError("steps", Mistake("most_steps", f"in {most_steps} {text}", "grant more"))
    best = solution if solution.plan else fastest(chain, most_steps)
    if best.plan and math.isfinite(period_s):
        return _too_slow(chain, best, period_s)
    if lonely := list(_lonely_layers(chain)):
        return NoPlanError("layers", *lonely)
    return _limit_in_the_way(chain)


def _too_slow(chain: Chain, best: Solution, period_s: float) -> NoPlanError:
    reached = 1 / chain.bottleneck_s(best.plan)
    if best.bound <= period_s:
        text = f"the fastest pipeline that was found reaches {reached:.6g} frames/s, not proven"
        return NoPlanError("steps", Mistake("throughput_floor_fps", text, "grant more most_steps"))
    found = f"{1 / period_s:.6g} frames/s cannot be reached"
    return NoPlanError(
        "throughput",
        Mistake("throughput_floor_fps", found, f"the fastest pipeline reaches {reached:.6g}"),
    )


def _lonely_layers(chain: Chain) -> Iterator[Mistake]:
    spans = np.minimum.reduce(chain.span_s)
    for layer in np.flatnonzero(np.isinf(_least_around(spans))).tolist():
        yield Mistake(
            f"layer {layer}", "no device can run it", "expected a finite time of one kind"
        )


def _least_around(spans: Floats) -> Floats:
    """Return for each layer the least value of the spans it is in, (layers,) of (cuts, cuts)."""
    begun = np.minimum.accumulate(spans, axis=0)
    least = np.minimum.accumulate(begun[:, ::-1], axis=1)[:, ::-1]
    return np.diagonal(least, 1)


def _limit_in_the_way(chain: Chain) -> NoPlanError:
    """Return the first limit without which there would be a pipeline."""
    roomy = replace(chain, capacity_bytes=(math.inf,) * len(chain.boards))
    if is_feasible(roomy):
        return NoPlanError("memory", *_memory_mistakes(chain))
    link_s = np.where(~chain.closed & np.isinf(chain.link_s), 0.0, chain.link_s)
    link_s[:-1, [0, -1]] = math.inf
    if is_feasible(replace(roomy, link_s=link_s)):
        found = "every pipeline sends over a link without bandwidth"
        return NoPlanError("links", Mistake("bandwidth_bytes_s", found, "expected more than 0"))
    able = _able_spans(roomy)
    if not _reaches_end(able, ~chain.closed):
        return _no_whole(chain, able)
    changes = f"the layers change {_changes(chain)} times between kinds that can run them"
    found = f"{len(chain.devices)} devices are too few, or of the wrong kinds"
    return NoPlanError("devices", Mistake("devices", found, changes))


def _able_spans(chain: Chain) -> Flags:
    able: Flags = np.logical_or.reduce(chain.fits)
    return able


def _reaches_end(able: Flags, cuts: Flags) -> bool:
    """Return whether spans make a whole that meet at some cuts, were there devices enough."""
    reached = np.zeros(cuts.size, np.bool_)
    reached[0] = True
    for cut in range(cuts.size - 1):
        if reached[cut] and cuts[cut]:
            reached |= able[cut]
    return bool(reached[-1])


def _no_whole(chain: Chain, able: Flags) -> NoPlanError:
    found = "no device can run a slice that begins and ends where there can be cuts"
    if not chain.closed.any() or not _reaches_end(able, np.ones_like(chain.closed)):
        return NoPlanError("layers", Mistake("spans_s", found, "expected more finite times"))
    behind = ", ".join(str(cut - 1) for cut in np.flatnonzero(chain.closed).tolist())
    text = f"{found}; the bytes are infinite behind the layers {behind}"
    return NoPlanError("cuts", Mistake("output_bytes", text, "expected fewer of these"))


def _memory_mistakes(chain: Chain) -> Iterator[Mistake]:
    """Yield the layers that fit nowhere, alone or with others; without such, the sums."""
    able = zip(chain.span_s, chain.span_bytes, strict=True)
    held = [np.where(np.isfinite(span), nbytes, np.inf) for span, nbytes in able]
    needs = _least_around(np.minimum.reduce(held))
    fits = _least_around(np.where(_able_spans(chain), 0.0, np.inf))
    tight = np.flatnonzero(np.isinf(fits)).tolist()
    for layer in tight:
        yield Mistake(
            f"layer {layer}",
            f"takes {bytes_text(round(needs[layer]))} of memory",
            f"the boards that can run it have less: {_memories(chain)}",
        )
    if not tight:
        total = float(chain.memory_bytes.min(axis=0).sum()) if chain.memory_bytes.ndim == 2 else 0
        found = "the layers do not fit into the boards' memory"
        sum_text = f"; the layers take {bytes_text(round(total))} without buffers" if total else ""
        yield Mistake("memory_bytes", found, f"there are {_memories(chain)}{sum_text}")


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
