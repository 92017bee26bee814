"""What mapping files say of split layers, and AutoDiCE's files of splits: checked, then records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails

from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.mapping import HALOS, WAYS, LayerPart, LayerSplit
from rankslice.framework.reading.spec_mistakes import path_text, spec_mistake
from rankslice.framework.wording import bare, described, joined, quoted

_AUTODICE_WAYS = {"lop": "outputs", "lip": "inputs", "height": "rows", "width": "columns"}


def _among(words: Sequence[str], word: str) -> str:
    if word not in words:
        raise ValueError(f"found {quoted(word)}")
    return word


_Way = Annotated[str, AfterValidator(partial(_among, WAYS)), WithJsonSchema({"enum": [*WAYS]})]
_Halo = Annotated[str, AfterValidator(partial(_among, HALOS)), WithJsonSchema({"enum": [*HALOS]})]


class _PartSpec(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    layers: Annotated[
        list[str],
        Field(min_length=1, description='a list of layers and ranges, such as ["conv1..pool5"]'),
    ]
    by: Annotated[_Way, Field(description=joined(WAYS, "or"))]
    share: Annotated[
        float, Field(gt=0, le=1e6, description="a number above 0, and up to a million, such as 2")
    ] = 1
    halo: Annotated[_Halo, Field(description=joined(HALOS, "or"))] = "recompute"


def read_part(value: object, where: str) -> LayerPart:
    """Return the part of layers that an object of a mapping file describes."""

    def mistake(detail: ErrorDetails) -> Mistake:
        path, known, value = detail["loc"], _PartSpec.model_fields, detail["input"]
        field = str(path[0])
        words = {"by": WAYS, "halo": HALOS}.get(field, ())
        expected = nearest(value, words) if isinstance(value, str) else ""
        if field in known and not expected:
            expected = f"expected {known[field].description}"
        return spec_mistake(detail, path, lambda inside: where + path_text(inside), known, expected)

    try:
        spec = _PartSpec.model_validate(value)
    except ValidationError as error:
        raise RankSliceError(*map(mistake, error.errors())) from None
    if spec.halo != HALOS[0] and spec.by not in ("rows", "columns"):
        found = f"parts by {spec.by} have no halo"
        raise RankSliceError(Mistake(f"{where}.halo", found, "leave it out"))
    return LayerPart(tuple(spec.layers), spec.by, spec.share, spec.halo)


def part_schema() -> dict[str, Any]:
    """Return the JSON Schema of a part."""
    schema = _PartSpec.model_json_schema()
    fields = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in schema["properties"].items()
    }
    return {"type": "object", **schema, "title": "Part of layers", "properties": fields}


_Size = Annotated[int, Field(gt=0, strict=True)]
_AutodiceSplit = tuple[
    Annotated[str, AfterValidator(partial(_among, [*_AUTODICE_WAYS]))],
    Annotated[list[_Size], Field(min_length=2)],
    Annotated[list[str], Field(min_length=2)],
]
_AUTODICE = TypeAdapter(dict[str, _AutodiceSplit])
SPLITS_SHAPE = 'expected {"conv2_1": ["lop", [48, 96], ["edge01_cpu0", "edge02_cpu0"]]}'
_AUTODICE_VALUES = (
    f"expected {joined([*_AUTODICE_WAYS], 'or')}",
    "expected a list of two or more sizes from 1",
    "expected a list of two or more keys of the mapping",
)


def read_splits(value: object, name: str) -> tuple[LayerSplit, ...]:
    """Return the splits that a file of AutoDiCE's second form has: by layer, how, sizes, keys.

    The sizes of ``lop`` are where the parts of the output channels end; those of ``lip``,
    ``height`` and ``width`` are sizes. The last part of each takes what is left.
    """

    def mistake(detail: ErrorDetails) -> Mistake:
        layer, *path = detail["loc"] or ("",)
        value, field = detail["input"], path[0] if path else None
        expected = nearest(value, _AUTODICE_WAYS) if field == 0 and isinstance(value, str) else ""
        if isinstance(field, int):
            expected = expected or _AUTODICE_VALUES[field]
        where = f"{name}: {bare(str(layer))}{path_text(path)}" if layer else name
        found = "is missing" if detail["type"] == "missing" else f"found {described(value)}"
        return Mistake(where, found, expected or SPLITS_SHAPE)

    try:
        splits = _AUTODICE.validate_python(value)
    except ValidationError as error:
        raise RankSliceError(*map(mistake, error.errors())) from None
    raise_mistakes(_size_mistakes(splits, name))
    return tuple(
        LayerSplit(f"{name}: {bare(layer)}", layer, _AUTODICE_WAYS[way], _parts(way, sizes), (*k,))
        for layer, (way, sizes, k) in splits.items()
    )


def _parts(way: str, sizes: Sequence[int]) -> tuple[int, ...]:
    if way != "lop":
        return tuple(sizes)
    return tuple(end - begin for begin, end in pairwise((0, *sizes)))


def _size_mistakes(splits: dict[str, _AutodiceSplit], name: str) -> Iterator[Mistake]:
    if not splits:
        yield Mistake(name, "the file splits no layer", SPLITS_SHAPE)
    for layer, (way, sizes, keys) in splits.items():
        where = f"{name}: {bare(layer)}"
        if len(sizes) != len(keys):
            found = f"{len(sizes)} sizes and {len(keys)} keys"
            yield Mistake(where, found, "expected a size for each key")
        if len({*keys}) < len(keys):
            yield Mistake(f"{where}[2]", "a key appears twice", "expected every key once")
        if min(_parts(way, sizes)) < 1:
            expected = "expected where the parts end: each further than the one before"
            yield Mistake(
                f"{where}[1]", f"the sizes of lop are {joined([*map(str, sizes)])}", expected
            )
