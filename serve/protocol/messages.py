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
_FIELDS = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ModelReadyRequest": "string name, string version",
    "ModelReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name, string version, string* extensions",
    "RepositoryIndexRequest": "string repository_name, bool ready",
    "RepositoryIndexResponse": "ModelIndex* models",
    "ModelIndex": "string name, string version, string state, string reason",
    "ModelMetadataRequest": "string name, string version",
    "ModelMetadataResponse": "string name, string* versions, string platform,"
    " TensorMetadata* inputs, TensorMetadata* outputs",
    "TensorMetadata": "string name, string datatype, int64* shape",
    "ModelInferRequest": "string model_name, string model_version, string id,"
    " Parameter* parameters, Tensor* inputs, RequestedOutput* outputs, bytes* raw_input_contents",
    "ModelInferResponse": "string model_name, string model_version, string id,"
    " Parameter* parameters, Tensor* outputs, bytes* raw_output_contents",
    "Tensor": "string name, string datatype, int64* shape, Parameter* parameters,"
    " Contents contents",
    "RequestedOutput": "string name, Parameter* parameters",
    "Parameter": "string key, ParameterValue value",
    "ParameterValue": "bool bool_param, int64 int64_param, string string_param,"
    " double double_param, uint64 uint64_param",
    "Contents": "bool* bool_contents, int32* int_contents, int64* int64_contents,"
    " uint32* uint_contents, uint64* uint64_contents, float* fp32_contents, double* fp64_contents,"
    " bytes* bytes_contents",
}
"""By message: its fields in the order of their numbers, which begin at 1; ``*``: repeated."""

_CHOICES = ("ParameterValue",)
"""Messages of which one field is set."""


def _made() -> dict[str, Any]:
    file = FileDescriptorProto(name="inference.proto", package="inference", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        if name in _CHOICES:
            message.oneof_decl.add(name="choice")
        for number, field in enumerate(fields.split(", ") if fields else (), 1):
            kind, field_name = field.split()
            added = message.field.add(name=field_name, number=number)
            is_list, kind = kind.endswith("*"), kind.rstrip("*")
            added.label = added.LABEL_REPEATED if is_list else added.LABEL_OPTIONAL
            if kind in _SCALARS:
                added.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
            else:
                added.type, added.type_name = added.TYPE_MESSAGE, f".inference.{kind}"
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
