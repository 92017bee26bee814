"""How much of a sub-model an accelerator has taken over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..errors import JobError


@dataclass(frozen=True, slots=True)
class Acceleration:
    """What runs on the accelerator, of one sub-model or of all that a rank has."""

    by: str
    """The delegate, execution provider or accelerator, by its own name."""
    operators: int | None
    """How many it runs; ``None``: the engine does not tell."""
    of: int | None
    partitions: int | None = None
    """In how many pieces it runs them: between pieces, tensors go to the CPU and back."""
    others: tuple[str, ...] = ()
    tf32: bool | None = None
    """Whether float32 is computed with the 10 bits of TF32; ``None``: the accelerator has none."""
    uses: tuple[str, ...] = ()
    """What the engine has chosen to use beside: ``CUDA graph``."""
    without: dict[str, str] = field(default_factory=dict)
    """What it could have used but does not -> why."""

    @property
    def is_full(self) -> bool:
        return self.operators is not None and self.operators == self.of


def refuse_fallback(name: str, acceleration: Acceleration) -> None:
    """Raise :class:`JobError` unless all operators of the sub-model ``name`` are accelerated."""
    if acceleration.is_full:
        return
    if acceleration.operators is None:
        extent = f"{acceleration.by} does not run all operators, or does not report that it does"
    else:
        extent = f"{acceleration.by} runs {acceleration.operators} of {acceleration.of} operators"
        if acceleration.others:
            extent += f", but not {', '.join(acceleration.others)}"
    raise JobError(
        f"{name}: {extent}; map the other layers to a CPU, or let them run on the host core with"
        " allow_fallback: true in the platform file"
    )


def total(accelerations: Iterable[Acceleration | None]) -> Acceleration | None:
    parts = [part for part in accelerations if part is not None]
    if not parts:
        return None
    others = dict.fromkeys(kind for part in parts for kind in part.others)
    without = {name: why for part in reversed(parts) for name, why in part.without.items()}
    return Acceleration(
        by=parts[0].by,
        operators=_sum(part.operators for part in parts),
        of=_sum(part.of for part in parts),
        partitions=_sum(part.partitions for part in parts),
        others=tuple(others),
        tf32=parts[0].tf32,
        uses=tuple(name for name in parts[0].uses if name not in without),
        without=without,
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [*numbers]
    return None if None in known else sum(number or 0 for number in known)
