"""The inputs and outputs of a sub-model's file, matched with those of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import JobError
from ..job import Tensor


@dataclass(frozen=True, slots=True)
class FileTensor:
    name: str
    dtype: str
    """numpy's name of the type."""
    shape: tuple[int, ...] | None
    """-1: any size; ``None``: the file does not tell."""
    number: int = 0
    """By which the engine knows it, unless that is the name."""
    alias: str = ""
    """Its other name, in the model's signature."""


def match_tensors(
    file: str, side: str, planned: Sequence[Tensor], present: Sequence[FileTensor]
) -> list[FileTensor]:
    """Return the file's tensors in the order of the job's.

    Tensors are matched by name, else by their name in the signature. A ``.tflite`` file may have
    several tensors of one name, or nameless ones; these are matched in the order in which they
    stand in the file with the job's that are left.

    Raises:
        JobError: a tensor is missing, has another type or shape, or is an input that the job
            lacks.
    """
    left = list(present)
    matched = [_take(spec.name, left) for spec in planned]
    times = Counter(tensor.name for tensor in present)
    unclear = [tensor for tensor in left if not tensor.name or times[tensor.name] > 1]
    result = []
    for spec, known in zip(planned, matched, strict=True):
        if known is None and not unclear:
            names = ", ".join(repr(tensor.name) for tensor in present) or "none"
            raise JobError(f"{file}: has no {side} {spec.name!r}; it has {names}")
        tensor = known or unclear.pop(0)
        if known is None:
            left.remove(tensor)
        if tensor.dtype != spec.dtype or not _admits(tensor.shape, spec):
            sizes = "[...]" if tensor.shape is None else list(tensor.shape)
            raise JobError(
                f"{file}: {side} {spec.name!r} is {tensor.dtype}{sizes}, the job says"
                f" {spec.dtype}{list(spec.shape)}"
            )
        result.append(tensor)
    if side == "input" and left:
        raise JobError(f"{file}: needs input {left[0].name!r}, which the job lacks")
    return result


def _take(name: str, left: list[FileTensor]) -> FileTensor | None:
    for key in ("name", "alias"):
        fitting = [tensor for tensor in left if getattr(tensor, key) == name]
        if len(fitting) == 1:
            left.remove(fitting[0])
            return fitting[0]
        if fitting:
            return None
    return None


def _admits(declared: tuple[int, ...] | None, spec: Tensor) -> bool:
    if declared is None:
        return True
    symbols = spec.symbols or ("",) * len(spec.shape)
    return len(declared) == len(spec.shape) and all(
        symbol or size in (-1, planned)
        for size, planned, symbol in zip(declared, spec.shape, symbols, strict=True)
    )


def refuse_open_sizes(file: str, specs: Iterable[Tensor], used: str) -> None:
    """Raise an error if a tensor has open sizes, as what is ``used`` takes fixed ones only."""
    for spec in specs:
        if spec.is_open:
            raise JobError(
                f"{file}: the sizes of {spec.name!r} may change from frame to frame, and {used}"
                " takes fixed ones only: map its layers to a CPU, or fix the sizes (build --shape)"
            )
