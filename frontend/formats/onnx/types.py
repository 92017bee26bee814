"""Element types and sizes of ONNX tensors."""

from __future__ import annotations

from onnx import TensorProto, TypeProto

_NUMPY_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}
_DTYPES: dict[int, str] = {
    number: _NUMPY_NAMES.get(name, name.lower())
    for name, number in TensorProto.DataType.items()
    if number != TensorProto.UNDEFINED
}
_ELEMENT_TYPES: dict[str, int] = {dtype: number for number, dtype in _DTYPES.items()}
_OTHERS = ("sequence", "optional", "map", "sparse_tensor")


def dtype_of(element_type: int) -> str:
    """Return numpy's name of an ONNX element type; empty for an undefined or unknown one.

    Types that numpy lacks have ONNX's name in lower case: ``bfloat16``, ``float8e4m3fn``,
    ``int4``, ``string``.
    """
    return _DTYPES.get(element_type, "")


def dtype_of_value(kind: TypeProto) -> str:
    """Return the name of a tensor's element type; of another value what it is: ``sequence``."""
    value = (kind.WhichOneof("value") or "").removesuffix("_type")
    return value if value in _OTHERS else dtype_of(kind.tensor_type.elem_type)


def element_type(dtype: str) -> int:
    """Return the ONNX element type of the name that :func:`dtype_of` gives."""
    return _ELEMENT_TYPES[dtype]


def sizes_of(kind: TypeProto) -> tuple[int | None, ...] | None:
    """Return a tensor's sizes, ``None`` for an open one; ``None`` where it has no shape."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)


def fixed_shape(kind: TypeProto) -> tuple[int, ...] | None:
    """Return a tensor's shape; ``None`` unless all its sizes are known."""
    sizes = sizes_of(kind)
    if sizes is None:
        return None
    known = tuple(size for size in sizes if size is not None and size >= 0)
    return known if len(known) == len(sizes) else None


def is_fixed(kind: TypeProto) -> bool:
    return bool(kind.tensor_type.elem_type) and fixed_shape(kind) is not None


def dims_of(kind: TypeProto) -> tuple[int, ...]:
    """Return the sizes of a tensor that has fixed ones."""
    return tuple(dim.dim_value for dim in kind.tensor_type.shape.dim)
