"""Platform files in YAML: read to the record, with all mistakes at once.

Which keys there are, and what they mean, says the JSON Schema ``platform.schema.json``, which
editors use, too. What it cannot say is here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeAlias

from rankslice.framework.engines import ENGINES
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.files.templates import template_text
from rankslice.framework.platform import Accelerator, Board, Cluster, Link, Platform
from rankslice.framework.reading.read_yaml import SHAPE, read_yaml
from rankslice.framework.specs.core_lists import core_list, count_or_list, each_once
from rankslice.framework.specs.platform_names import BOARD_RULE, check_name
from rankslice.framework.wording import bare, described, joined, quoted


def parse_platform_yaml(text: str, name: str) -> Platform:
    """Return the platform that a YAML text describes.

    Raises:
        RankSliceError: with all mistakes of the text.
    """
    data = read_yaml(text, name)
    if not isinstance(data, dict | None):
        raise RankSliceError(Mistake(name, f"the file holds {described(data)}", SHAPE))
    mistakes: list[Mistake] = []
    values = _Place(name, mistakes).keys(data, "Platform")
    raise_mistakes((*mistakes, *_pair_mistakes(data or {}, name)))
    return Platform(name, **values.pop("links", {}), **values)


@cache
def platform_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(template_text("platform.schema.json"))
    return schema


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a file, and where mistakes go."""

    file: str
    mistakes: list[Mistake]
    path: str = ""
    expected: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)
    """What stands before it in the same object, as far as it is right."""

    def at(self, part: str | int, expected: str = "") -> _Place:
        step = f"[{part}]" if isinstance(part, int) else f".{bare(part)}"
        path = f"{self.path}{step}".removeprefix(".")
        return replace(self, path=path, expected=expected or self.expected)

    def refuse(self, found: str, expected: str = "") -> None:
        where = f"{self.file}: {self.path}" if self.path else self.file
        self.mistakes.append(Mistake(where, found, expected or self.expected))

    def read(self, reader: _Reader, value: object) -> Any:
        """Return what stands here; ``None`` if it is wrong."""
        try:
            return reader(self, value)
        except ValueError as error:
            self.refuse(str(error) or f"found {described(value)}")
            return None

    def items(self, reader: _Reader, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError
        return tuple(self.at(number).read(reader, item) for number, item in enumerate(value))

    def keys(self, value: object, kind: str) -> dict[str, Any]:
        """Return the values of the keys of an object, without those that are wrong.

        A key with nothing after it, ``gpu:``, is as if it were not there.

        Args:
            kind: its name in the schema.
        """
        schema = platform_schema()["$defs"].get(kind, platform_schema())
        keys = schema["properties"]
        known = {
            name: item
            for name, item in _object({} if value is None else value).items()
            if item is not None or name not in keys
        }
        values: dict[str, Any] = {}
        for name, key in keys.items():
            expected = f"expected {key['description']}"
            if name in known:
                reader = _READERS.get(name) or _reader_of(key.get("anyOf", (key,))[0])
                here = replace(self.at(name, expected), beside=values)
                result = here.read(reader, known[name])
                if result is not None:
                    values[name] = result
            elif name in schema["required"]:
                self.refuse(f"{name!r} is missing", expected)
        for name in known:
            if name not in keys:
                hint = nearest(name, keys) or f"known keys are {joined([*keys])}"
                self.refuse(f"unknown key {quoted(name)}", hint)
        return values


_Reader: TypeAlias = Callable[[_Place, Any], Any]
"""Returns what a value means; raises ``ValueError`` that says what was found, or nothing."""

_TRUTHS = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}


def _reader_of(schema: Mapping[str, Any]) -> _Reader:
    """Return what reads the text of a scalar."""
    if schema["type"] == "boolean":
        return _truth
    return partial(_number, schema) if schema["type"] == "number" else _text


def _text(place: _Place, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _truth(place: _Place, value: object) -> bool:
    if (word := _text(place, value).lower()) not in _TRUTHS:
        raise ValueError
    return _TRUTHS[word]


def _number(schema: Mapping[str, Any], place: _Place, value: object) -> float:
    try:
        number = float(_text(place, value))
    except ValueError:
        raise ValueError from None
    above, least = (schema.get(name, -math.inf) for name in ("exclusiveMinimum", "minimum"))
    if not (number > above and number >= least and math.isfinite(number)):
        raise ValueError
    return number


def _name(kind: str) -> _Reader:
    return lambda place, value: check_name(kind, _text(place, value))


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return value


def _texts(place: _Place, value: object, name_reader: _Reader = _text) -> dict[str, str]:
    texts = {}
    for name, item in _object(value).items():
        here = place.at(name)
        here.read(name_reader, name)
        texts[name] = here.read(_text, item)
    return texts


_BESIDE = ("delegate", "provider", "plugin")
_ELEMENT_TYPES = (
    *("float32", "float16", "bfloat16", "float64"),
    *("int8", "uint8", "int16", "uint16", "int32", "int64"),
)


def _options(place: _Place, value: object) -> dict[str, str]:
    options = _texts(place, value)
    for name in _BESIDE:
        if name in options and None not in options.values():
            raise ValueError(f"the {name} belongs beside the options, not among them")
    return options


def _element_type(place: _Place, value: object) -> str:
    if (name := _text(place, value)) not in _ELEMENT_TYPES:
        known = joined(_ELEMENT_TYPES)
        raise ValueError(f"{quoted(name)} is no element type; known are {known}")
    return name


def _of_engine(place: _Place, value: object) -> str:
    """Return what only some engines take, if the engine beside it does."""
    text, name, engine = (
        _text(place, value),
        place.path.rpartition(".")[2],
        place.beside.get("engine"),
    )
    takers = [known for known, row in ENGINES.items() if name in row.platform_keys]
    if engine and engine not in takers:
        does = f"{joined(takers)} {'does' if len(takers) == 1 else 'do'}"
        raise ValueError(f"the engine {engine} takes no {name}, only {does}")
    if name == "plugin":
        if not place.beside.get("provider"):
            raise ValueError("it also needs a provider")
        check_name("plugin", text)
    return text


def _accelerator(place: _Place, value: object) -> Accelerator:
    values = {"engine": "", **place.keys(value, "Accelerator")}
    named = {name: text for name in _BESIDE if (text := values.pop(name, ""))}
    options = {**named, **values.pop("options", {})}
    environment = values.pop("environment", {})
    return Accelerator(
        options=tuple(options.items()), environment=tuple(environment.items()), **values
    )


def _accelerators(place: _Place, value: object) -> tuple[Accelerator, ...]:
    if isinstance(value, list):
        return place.items(_accelerator, value)
    return (_accelerator(place, value),)


def _cores(place: _Place, value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        return count_or_list(value)
    if isinstance(value, list) and value and all(isinstance(core, str) for core in value):
        return each_once(core_list(",".join(value)))
    raise ValueError


def _clusters(place: _Place, value: object) -> tuple[Cluster, ...]:
    clusters = []
    owners: dict[int, str] = {}
    for name, item in _object(value).items():
        cluster = item if isinstance(item, dict) else {"cores": item}
        if isinstance(number := cluster.get("cores"), str):  # is that core here, not a count
            cluster = {**cluster, "cores": [number]}
        values = place.at(name).keys(cluster, "Cluster")
        cores = tuple(sorted(values.pop("cores", ())))
        clusters.append(Cluster(name, cores, **values))
        for core in cores:
            if core in owners:
                raise ValueError(f"core {core} is in {quoted(owners[core])} and {quoted(name)}")
            owners[core] = name
    return tuple(clusters)


def _boards(place: _Place, value: object) -> tuple[Board, ...]:
    boards = []
    for name, item in _object(value).items():
        here = place.at(name, "expected a board such as `{cores: 0-5}`")
        replace(here, expected=BOARD_RULE).read(_name("board"), name)
        boards.append(here.read(partial(_board, name), item))
    if not boards:
        raise ValueError
    return tuple(boards)


def _board(name: str, place: _Place, value: object) -> Board:
    mistakes_before = len(place.mistakes)
    values = place.keys(value, "Board")
    grouped = {core for cluster in values.get("clusters", ()) for core in cluster.cores}
    cores = values.pop("cores", tuple(sorted(grouped)) or None)
    odd = grouped.symmetric_difference(cores or ()) if grouped else ()
    if odd and len(place.mistakes) == mistakes_before:
        missing = min(odd) not in grouped
        where = "is in no cluster" if missing else "of a cluster is not among the cores"
        raise ValueError(f"core {min(odd)} {where}")
    host, gpus, npus = values.pop("host", name), values.pop("gpu", ()), values.pop("npu", ())
    return Board(name, host, cores=cores, gpus=gpus, npus=npus, **values)


def _link(place: _Place, value: object, kind: str = "Link") -> tuple[str, str, Link]:
    values = {"bandwidth_mbps": 0.0, "latency_ms": 0.0, **place.keys(value, kind)}
    one, other = values.pop("between", ("", ""))
    return one, other, Link(**values)


def _between(place: _Place, value: object) -> tuple[str, ...]:
    names = place.items(_text, value)
    if len(names) != 2:
        raise ValueError
    return names


def _links(place: _Place, value: object) -> dict[str, Any]:
    values = place.keys(value, "Links")
    return {"default_link": values.get("default"), "links": values.get("pairs", ())}


_READERS: Mapping[str, _Reader] = {
    **{name: _name(name) for name in ("engine", "host", "user")},
    **dict.fromkeys(_BESIDE, _of_engine),
    "between": _between,
    "boards": _boards,
    "clusters": _clusters,
    "cores": _cores,
    "cpu": _accelerator,
    "default": lambda place, value: _link(place, value)[2],
    "environment": partial(_texts, name_reader=_name("variable")),
    "gpu": _accelerators,
    "links": _links,
    "npu": _accelerators,
    "options": _options,
    "pairs": lambda place, value: place.items(partial(_link, kind="Pair"), value),
    "types": lambda place, value: place.items(_element_type, value),
}
"""What reads the value of a key, by its name; all others are texts, numbers or truth values."""


def _pair_mistakes(data: Mapping[str, Any], name: str) -> Iterator[Mistake]:
    """Yield pairs of links that are not two boards of the file, or there twice."""
    match data:
        case {"boards": dict(boards), "links": {"pairs": list(pairs)}}:
            pass
        case _:
            return
    seen: set[frozenset[str]] = set()
    for index, pair in enumerate(pairs):
        match pair:
            case {"between": [str(first), str(second)]}:
                where = f"{name}: links.pairs[{index}].between"
                for board in dict.fromkeys((first, second)):
                    if board not in boards:
                        hint = nearest(board, boards) or "name it in boards"
                        yield Mistake(where, f"no board {quoted(board)}", hint)
                if first == second:
                    yield Mistake(where, f"{quoted(first)} appears twice", "expected two boards")
                elif {first, second} in seen:
                    found = f"{quoted(first)} and {quoted(second)} have a link already"
                    expected = "expected every pair once; it holds in both directions"
                    yield Mistake(where, found, expected)
                seen.add(frozenset((first, second)))
