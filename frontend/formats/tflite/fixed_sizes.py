"""Ranks whose accelerators take fixed sizes only, although their tensors have open ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rankslice.backend.runtime.job import Rank
from rankslice.framework.engines import ENGINES
from rankslice.framework.errors import Mistake
from rankslice.framework.wording import listed
from rankslice.frontend.partition.partition import Partition

_CPU = "cpu"
_INTERPRETER = "interpreter"


def open_size_mistakes(path: Path, cut: Partition, ranks: Sequence[Rank]) -> Iterator[Mistake]:
    """Yield the ranks that exchange tensors of open sizes, which their accelerators cannot take."""
    for placement in ranks:
        used = _accelerates(placement)
        names = dict.fromkeys(
            tensor.name
            for segment in cut.segments
            if segment.rank == placement.rank
            for tensor in (*segment.inputs, *segment.outputs)
            if tensor.is_open
        )
        if used and names:
            title = ENGINES[placement.engine].title
            yield Mistake(
                f"{path}: rank {placement.rank} ({placement.key})",
                f"{used} of {title} takes fixed sizes only, but those of {listed(list(names))} may"
                " change from frame to frame",
                "map these layers to a CPU, or fix the sizes with --shape",
            )


def _accelerates(placement: Rank) -> str:
    options = dict(placement.options)
    if not ENGINES[placement.engine].accelerates_fixed_sizes_only:
        return ""
    if "delegate" in options:
        return f"the delegate {options['delegate']}"
    if placement.accelerator != _CPU:
        return f"the {placement.accelerator}"
    return "" if options.get("api", _INTERPRETER) == _INTERPRETER else "a compiled model"
