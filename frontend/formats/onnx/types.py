"""Names of the element types of ONNX tensors."""

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
    found = (kind.WhichOneof("value") or "").removesuffix("_type")
    return found if found in _OTHERS else dtype_of(kind.tensor_type.elem_type)


def element_type(dtype: str) -> int:
    """Return the ONNX element type of the name that :func:`dtype_of` gives."""
    return _ELEMENT_TYPES[dtype]
