"""Which tensors can be sent to another rank, and what lets the others be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankslice.framework.graph import Tensor, dtype_bits
from rankslice.framework.wording import size_option

_MAX_BYTES = 2**31 - 1
"""What one MPI message of bytes can carry: its count is a C int."""

HEADER_BYTES, MAX_DIMENSIONS = 64, 12
"""Of messages of tensors with open sizes: what they begin with, and what it has room for."""

_AN_EXAMPLE = (100, 4)
"""What messages suggest as sizes of a tensor of which nothing is known."""

_NO_TENSORS = {
    "map": "a map",
    "optional": "an optional value",
    "sequence": "a sequence",
    "sparse_tensor": "a sparse tensor",
}


def crossing_fault(tensor: Tensor) -> str:
    """Return the reason why a tensor cannot be sent to another rank; empty if it can."""
    size = tensor.nbytes
    if not tensor.dtype:
        return "it is not a tensor of a known element type"
    if tensor.dtype in _NO_TENSORS:
        return f"it is {_NO_TENSORS[tensor.dtype]}, not a tensor"
    if not dtype_bits(tensor.dtype):
        return f"its elements ({tensor.dtype}) have no fixed size"
    if size is None:
        return "its sizes have no known bound"
    if not size and not tensor.is_open:
        return "it has no elements"
    if tensor.is_open and len(tensor.shape or ()) > MAX_DIMENSIONS:
        return f"it has open sizes and more than {MAX_DIMENSIONS} dimensions"
    if tensor.is_open and dtype_bits(tensor.dtype) % 8:
        return f"it has open sizes, and its elements ({tensor.dtype}) are packed into bytes"
    if _is_too_large(tensor):
        sizes = " x ".join(map(str, tensor.shape or ()))
        most = _MAX_BYTES - HEADER_BYTES
        return f"it may have {size} bytes ({sizes}), but a message holds at most {most}"
    if size > _MAX_BYTES:
        return f"it has {size} bytes, but a message holds at most {_MAX_BYTES}"
    return ""


def remedy(tensors: Sequence[Tensor]) -> str:
    """Say what lets tensors be handed over; empty: nothing, or they are of different kinds."""
    if not all(dtype_bits(tensor.dtype) for tensor in tensors):
        whose = "its type and shape" if len(tensors) == 1 else "types and shapes"
        is_unknown = any(not tensor.dtype for tensor in tensors)
        return f"state {whose} in the model file if they are fixed" if is_unknown else ""
    bounds = {tensor.name: _better_bound(tensor) for tensor in tensors}
    if not all(bounds.values()):
        return ""
    whose = "its" if len(tensors) == 1 else "their"
    which = "smaller" if all(tensor.shape for tensor in tensors) else f"{whose} largest"
    options = [size_option("--at-most", name, bound) for name, bound in bounds.items()]
    return f"give {which} sizes, such as {' '.join(options)}"


def _better_bound(tensor: Tensor) -> tuple[int, ...]:
    """Return an example of a bound that lets a tensor be handed over; ``()``: no bound does."""
    if tensor.shape is None:
        return () if dtype_bits(tensor.dtype) % 8 else _AN_EXAMPLE
    smaller = tensor
    while _is_too_large(smaller):
        shape = smaller.shape or ()
        axis = max(range(len(shape)), key=lambda axis: bool(tensor.symbols[axis]) * shape[axis])
        shape = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
        smaller = replace(smaller, shape=shape)
    return (smaller.shape or ()) if not crossing_fault(smaller) else ()


def _is_too_large(tensor: Tensor) -> bool:
    return tensor.is_open and (tensor.nbytes or 0) > _MAX_BYTES - HEADER_BYTES
