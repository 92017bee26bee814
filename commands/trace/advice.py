"""Where a model could be cut so that less crosses a link."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from rankslice.framework.errors import RankSliceError
from rankslice.framework.wording import bytes_text, quoted
from rankslice.frontend.costs.cuts import Cut
from rankslice.session.inspecting.inspect import inspect_model

_LESS = 0.5
"""Of what crosses now, at most: another cut has to be worth building again."""
_FARTHEST = 0.25
"""Share of the model's work that may change sides."""


def cut_advice(folder: Path, channels: Collection[int]) -> str:
    """Return which cut near the present one sends less than half; empty: none, or no model."""
    if not channels:
        return ""
    try:
        found = inspect_model(folder)
    except RankSliceError:
        return ""
    if found.plan is None:
        return ""
    tensors = {channel.tensor for channel in found.plan.channels if channel.number in channels}
    return _advice(found.cuts, tensors)


def _advice(cuts: Sequence[Cut], tensors: set[str]) -> str:
    now = next((cut for cut in cuts if {tensor.name for tensor in cut.tensors} == tensors), None)
    if now is None or not now.nbytes:
        return ""
    near = [
        cut
        for cut in cuts
        if cut.nbytes
        and not cut.obstacle
        and cut.nbytes <= _LESS * now.nbytes
        and abs(cut.share - now.share) <= _FARTHEST
        and cut.divides
    ]
    if not near:
        return ""
    best = min(near, key=lambda cut: (abs(cut.share - now.share), cut.nbytes or 0))
    times = now.nbytes / (best.nbytes or 1)
    return (
        f"a cut after {quoted(best.after)} would send {_part(times)}:"
        f" {bytes_text(best.nbytes or 0)} instead of {bytes_text(now.nbytes)} per frame"
    )


def _part(times: float) -> str:
    """Return a part in words: ``half``, ``a quarter``, ``a 32nd``."""
    whole = round(times)
    names = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 8: "an eighth", 10: "a tenth"}
    if abs(times - whole) <= 0.1 and whole in names:
        return names[whole]
    return f"{100 / times:.3g} % of that"
