"""Parts files in YAML: which model files make a model, and how they are joined."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.reading.read_yaml import read_yaml
from rankslice.framework.reading.spec_mistakes import place_in, spec_mistake
from rankslice.framework.wording import bare, described, joined, quoted

_FILE_KEYS = {"onnx": "onnx", "tflite": "tflite", "keras": "tflite"}
"""Keys of a part's files, and the format of the sub-models of each."""

LAYOUTS = {"nhwc-to-nchw": (0, 3, 1, 2), "nchw-to-nhwc": (0, 2, 3, 1)}
"""Changes of an image's layout, as permutations of its axes."""

_SHAPE = "expected parts and outputs, as in docs/formats.md"


@dataclass(frozen=True, slots=True)
class Feed:
    """Where an input of a part comes from."""

    part: str
    """Which part makes it; empty: it is an input of the whole model."""
    tensor: str
    """Of that part, as its file calls it; or the name of the whole model's input."""
    layout: str = ""
    """How its layout is changed: one of :data:`LAYOUTS`; empty: it is not."""

    @property
    def permutation(self) -> tuple[int, ...]:
        return LAYOUTS.get(self.layout, ())

    @property
    def text(self) -> str:
        return f"{self.part}/{self.tensor}" if self.part else self.tensor


@dataclass(frozen=True, slots=True)
class PartSpec:
    name: str
    files: Mapping[str, str]
    """By the format of its sub-models: the file of the same network, in the folder of the parts
    file. The first one is taken unless an engine wants another."""
    inputs: Mapping[str, Feed]
    """By the name in its file."""


@dataclass(frozen=True, slots=True)
class PartsFile:
    name: str
    parts: tuple[PartSpec, ...]
    """Each after those from which it reads."""
    outputs: Mapping[str, Feed]
    """By their names: which tensors of parts they are."""


def parse_parts_yaml(text: str, name: str) -> PartsFile:
    """Return what a parts file says.

    Raises:
        RankSliceError: with all mistakes that the file shows without the models.
    """
    data: Any = read_yaml(text, name, _SHAPE)
    try:
        spec = _FileSpec.model_validate(data)
    except ValidationError as error:
        raise RankSliceError(*(_mistake(detail, name) for detail in error.errors())) from None
    raise_mistakes(_reference_mistakes(spec, name))
    parts = {
        part: PartSpec(
            part,
            {_FILE_KEYS[key]: own[key] for key in own if key in _FILE_KEYS},
            {
                tensor: replace(_feed(text), layout=own.get("layouts", {}).get(tensor, ""))
                for tensor, text in own["inputs"].items()
            },
        )
        for part, own in data["parts"].items()  # in the order of the file
    }
    before = {part: [f.part for f in of.inputs.values() if f.part] for part, of in parts.items()}
    try:
        order = [*TopologicalSorter(before).static_order()]
    except CycleError as error:
        cycle = " -> ".join(map(quoted, error.args[1]))
        found = f"{cycle} feed each other in a cycle"
        expected = "expected each to read from others"
        raise RankSliceError(Mistake(f"{name}: parts", found, expected)) from None
    outputs = {output: _feed(text) for output, text in spec.outputs.items()}
    return PartsFile(name, tuple(parts[part] for part in order), outputs)


def _feed(text: str) -> Feed:
    part, slash, tensor = text.partition("/")
    return Feed(part, tensor) if slash else Feed("", text)


# The specs: what may stand in the file. A field's description completes "expected ...".


def _file_name(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise ValueError(f"{quoted(name)} leads out of the folder")
    return name


def _model_file(*suffixes: str) -> Any:
    def check(name: str) -> str:
        if PurePosixPath(_file_name(name)).suffix.lower() not in suffixes:
            raise ValueError(f"found {quoted(name)}")
        return name

    names = joined([f"head{suffix}" for suffix in suffixes], "or")
    description = f"a file in the folder of the parts file, such as {names}"
    return Annotated[str, AfterValidator(check), Field(description=description)]


_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_PART_RULE = "expected letters, digits, `_` and `-`, such as backbone"


def _part_name(name: str) -> str:
    if not _PART.fullmatch(name):
        raise ValueError(f"{quoted(name)} is not the name of a part")
    return name


def _layout(name: str) -> str:
    if name not in LAYOUTS:
        raise ValueError(f"{quoted(name)} is not {joined([*LAYOUTS], 'or')}")
    return name


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _EntrySpec(_Spec):
    onnx: _model_file(".onnx") = ""  # type: ignore[valid-type]
    tflite: _model_file(".tflite") = ""  # type: ignore[valid-type]
    keras: _model_file(".keras", ".h5", ".hdf5") = ""  # type: ignore[valid-type]
    inputs: Annotated[
        dict[str, str],
        Field(min_length=1, description="where its inputs come from: `{features: backbone/pool5}`"),
    ]

    layouts: Annotated[
        dict[str, Annotated[str, AfterValidator(_layout)]],
        Field(description="how layouts of inputs change: `{features: nhwc-to-nchw}`"),
    ] = Field(default_factory=dict)


class _FileSpec(_Spec):
    parts: Annotated[
        dict[Annotated[str, AfterValidator(_part_name)], _EntrySpec],
        Field(min_length=1, description="parts by name, such as `head: {onnx: head.onnx, ...}`"),
    ]
    outputs: Annotated[
        dict[str, str], Field(min_length=1, description="outputs by name: `{boxes: head/boxes}`")
    ]


# From pydantic's errors to ours, and what concerns several places of the file.


def _mistake(detail: ErrorDetails, name: str) -> Mistake:
    path = tuple(str(part) for part in detail["loc"] if part != "[key]")
    if not path:
        return Mistake(name, f"the file holds {described(detail['input'])}", _SHAPE)
    holder = _EntrySpec if len(path) > 2 and path[0] == "parts" else _FileSpec
    field, known = path[2] if holder is _EntrySpec else path[0], holder.model_fields
    expected = f"expected {known[field].description}" if field in known else _SHAPE
    if detail["type"] == "value_error" and len(path) == 2:
        expected = _PART_RULE
    return spec_mistake(detail, path, partial(place_in, name), known, expected)


def _reference_mistakes(spec: _FileSpec, name: str) -> Iterator[Mistake]:
    brought: set[str] = set()
    for part, entry in spec.parts.items():
        where = place_in(name, ("parts", part))
        files = [key for key in _FILE_KEYS if getattr(entry, key)]
        if not files:
            yield Mistake(where, "names no model file", f"expected {joined([*_FILE_KEYS], 'or')}")
        if len({_FILE_KEYS[key] for key in files}) < len(files):
            found = "names a Keras file and the .tflite file that it would be converted to"
            yield Mistake(where, found, "leave one of them out")
        for tensor in [name for name in entry.layouts if name not in entry.inputs]:
            hint = nearest(tensor, entry.inputs) or f"they are {joined([*entry.inputs])}"
            here = f"{where}.layouts"
            yield Mistake(here, f"{quoted(tensor)} is none of the part's inputs", hint)
        seen: dict[str, str] = {}
        for tensor, text in entry.inputs.items():
            here = f"{where}.inputs.{bare(tensor)}"
            yield from _unknown_part(here, text, spec)
            if text in seen:
                found = f"{quoted(text)} also feeds {quoted(seen[text])} of this part"
                yield Mistake(here, found, "expected a tensor to feed one input of a part")
            seen[text] = tensor
            brought |= set() if "/" in text else {text}
    made: dict[str, str] = {}
    for output, text in spec.outputs.items():
        here = place_in(name, ("outputs", output))
        if "/" not in text:
            yield Mistake(here, f"found {quoted(text)}", "expected part/tensor: head/boxes")
        yield from _unknown_part(here, text, spec)
        if "/" in output or not output:
            yield Mistake(here, "the name of an output has no '/'", "choose another")
        if output in brought:
            yield Mistake(here, "is the name of an input, too", "choose another")
        if text in made:
            yield Mistake(here, f"{quoted(text)} is the output {quoted(made[text])}, too")
        made[text] = output


def _unknown_part(where: str, text: str, spec: _FileSpec) -> Iterator[Mistake]:
    part, slash, tensor = text.partition("/")
    if slash and part not in spec.parts:
        hint = nearest(part, spec.parts) or f"the parts are {joined([*spec.parts])}"
        yield Mistake(where, f"there is no part {quoted(part)}", hint)
    elif not (tensor if slash else text):
        yield Mistake(where, "names no tensor", "expected one, such as backbone/pool5")
