"""Tensors of a model as the runtime knows them."""

from __future__ import annotations

from rankslice.backend.runtime.job import TensorSpec
from rankslice.framework.graph import Tensor


def tensor_spec(tensor: Tensor) -> TensorSpec:
    """Return what the runtime needs to know of a tensor whose largest shape is known."""
    return TensorSpec(tensor.name, tensor.dtype, tensor.shape or (), tensor.symbols)
