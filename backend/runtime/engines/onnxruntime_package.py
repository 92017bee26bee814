"""onnxruntime itself: imported once its telemetry is off, and its types."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..job import Tensor

_NUMBERS = {
    "bfloat16": 16,
    "float8e4m3fn": 17,
    "float8e4m3fnuz": 18,
    "float8e5m2": 19,
    "float8e5m2fnuz": 20,
    "uint4": 21,
    "int4": 22,
}
"""ONNX's numbers of the types that numpy lacks."""


def load_onnxruntime() -> Any:
    """Return the package ``onnxruntime``, which tells nobody what it runs.

    From 1.32 on it sends events to its vendor, and keeps a device id and a queue of events in the
    user's cache. It reads the variable once, when its library is loaded; a program that has loaded
    it before sends no further events.

    Raises:
        ImportError: it is not installed, or cannot be loaded.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def memory_of(
    spec: Tensor,
    address: int,
    shape: tuple[int, ...] | None = None,
    device: str = "cpu",
    of: int = 0,
) -> tuple[Any, ...]:
    """Return the arguments of onnxruntime's bindings for a tensor: place, type and shape.

    ``shape``: in this frame, where it has open sizes. ``of``: number of the device.
    """
    dtype = np.dtype(spec.storage[0])
    # Old versions demand numpy's type where there is one.
    kind = dtype.type if dtype.name == spec.dtype else _NUMBERS[spec.dtype]
    return spec.name, device, of, kind, spec.shape if shape is None else shape, address
