"""The messages of ``inference.GRPCInferenceService``.

The classes are made from the table of fields, in a pool of their own: a program may have loaded
another description of the same messages. A ``map`` travels as repeated entries of key and value, so
parameters are declared as such, and inner messages by names of their own.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from rankslice.serve.protocol.tensors import Reason, RefusalError

SERVICE = "inference.GRPCInferenceService"

_SCALARS = ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")
_NAME_AND_VERSION = {"name": (1, "string"), "version": (2, "string")}
_TENSOR = {
    "name": (1, "string"),
    "datatype": (2, "string"),
    "shape": (3, "int64*"),
    "parameters": (4, "Parameter*"),
    "contents": (5, "Contents"),
}

_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": _NAME_AND_VERSION,
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {**_NAME_AND_VERSION, "extensions": (3, "string*")},
    "ModelMetadataRequest": _NAME_AND_VERSION,
    "ModelMetadataResponse": {
        "name": (1, "string"),
        "versions": (2, "string*"),
        "platform": (3, "string"),
        "inputs": (4, "TensorMetadata*"),
        "outputs": (5, "TensorMetadata*"),
    },
    "TensorMetadata": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "int64*")},
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, "Parameter*"),
        "inputs": (5, "Tensor*"),
        "outputs": (6, "RequestedOutput*"),
        "raw_input_contents": (7, "bytes*"),
    },
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, "Parameter*"),
        "outputs": (5, "Tensor*"),
        "raw_output_contents": (6, "bytes*"),
    },
    "Tensor": _TENSOR,
    "RequestedOutput": {"name": (1, "string"), "parameters": (2, "Parameter*")},
    "Parameter": {"key": (1, "string"), "value": (2, "ParameterValue")},
    "ParameterValue": {
        "bool_param": (1, "bool"),
        "int64_param": (2, "int64"),
        "string_param": (3, "string"),
        "double_param": (4, "double"),
        "uint64_param": (5, "uint64"),
    },
    "Contents": {
        "bool_contents": (1, "bool*"),
        "int_contents": (2, "int32*"),
        "int64_contents": (3, "int64*"),
        "uint_contents": (4, "uint32*"),
        "uint64_contents": (5, "uint64*"),
        "fp32_contents": (6, "float*"),
        "fp64_contents": (7, "double*"),
        "bytes_contents": (8, "bytes*"),
    },
}
"""By message and field: its number and type; ``*``: repeated."""

_CHOICES = ("ParameterValue",)
"""Messages of which one field is set."""


def _made() -> dict[str, Any]:
    file = FileDescriptorProto(name="inference.proto", package="inference", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        if name in _CHOICES:
            message.oneof_decl.add(name="choice")
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number)
            added.label = (
                FieldDescriptorProto.LABEL_REPEATED
                if kind.endswith("*")
                else FieldDescriptorProto.LABEL_OPTIONAL
            )
            kind = kind.rstrip("*")
            if kind in _SCALARS:
                added.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
            else:
                added.type = FieldDescriptorProto.TYPE_MESSAGE
                added.type_name = f".inference.{kind}"
            if name in _CHOICES:
                added.oneof_index = 0
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in _FIELDS
    }


MESSAGES = _made()

MAX_FIELDS = 32 * 1024
"""Of a message and those inside it. Lists of numbers are one field each."""


def check_fields(descriptor: Any, content: memoryview, left: int = MAX_FIELDS) -> int:
    """Return how many of the fields that may be ``left`` still are after those of a message.

    Each takes memory once it is read. What is no message of the protocol is left to its reader.

    Raises:
        RefusalError: there are more.
    """
    place = 0
    while place < len(content):
        left -= 1
        if left < 0:
            raise RefusalError(Reason.TOO_LARGE, f"more than {MAX_FIELDS} fields")
        key, place = _varint(content, place)
        kind, number = key & 7, 0
        if kind in (0, 2):
            number, place = _varint(content, place)
        field = descriptor.fields_by_number.get(key >> 3)
        if kind == 2 and field is not None and field.message_type is not None:
            left = check_fields(field.message_type, content[place : place + number], left)
        place += {1: 8, 2: number, 5: 4}.get(kind, 0)
    return left


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place after it."""
    number = 0
    for shift, byte in zip(range(0, 70, 7), content[place : place + 10], strict=False):
        number, place = number | (byte & 127) << shift, place + 1
        if byte < 128:
            break
    return number, place
