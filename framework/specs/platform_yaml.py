"""Platform files in YAML: checked as a whole, then converted to the record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from rankslice.backend.runtime.job import COMPRESSIONS, Compression
from rankslice.framework.engines import ENGINES
from rankslice.framework.errors import Mistake, nearest, raise_mistakes
from rankslice.framework.platform import WIRES, Accelerator, Board, Cluster, Link, Platform, Wire
from rankslice.framework.reading.read_yaml import read_yaml
from rankslice.framework.reading.spec_mistakes import known_keys, place_in, spec_mistake
from rankslice.framework.specs.core_lists import CORES_PATTERN, core_list, count_or_list, each_once
from rankslice.framework.specs.platform_names import (
    BOARD_RULE,
    PATTERNS,
    check_name,
)
from rankslice.framework.wording import described, joined, quoted

_SHAPE = "expected boards by name, such as `boards: {edge01: {cores: 0-5}}`"


def parse_platform_yaml(text: str, name: str) -> Platform:
    """Return the platform that a YAML text describes."""
    data = read_yaml(text, name, _SHAPE)
    mistakes = [*_pair_mistakes(data, name)]
    try:
        spec = _PlatformSpec.model_validate(data)
    except ValidationError as error:
        mistakes = [*(_mistake(detail, name) for detail in error.errors()), *mistakes]
    raise_mistakes(mistakes)
    return _platform(spec, name)


def with_links_of(platform: Platform, text: str, name: str) -> str:
    """Return a YAML text that describes a platform, with the links of another one instead.

    All else keeps its words: a board that is called ``on`` is no truth value.
    """
    data = read_yaml(text, name, _SHAPE)
    assert isinstance(data, dict)
    return yaml.safe_dump({**data, "links": platform.links_section()}, sort_keys=False)


def platform_schema() -> dict[str, Any]:
    text = json.dumps(_PlatformSpec.model_json_schema())
    schema = json.loads(re.sub(r"\b_([A-Z][a-z]+)Spec\b", r"\1", text))  # our names for classes
    kinds = {name: _for_editors(kind) for name, kind in schema.pop("$defs").items()}
    title = {"title": "RankSlice platform", "description": "Boards and what they have."}
    return {**title, **_for_editors(schema), "$defs": kinds}


def _for_editors(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one kind of object, in which all but required fields may be empty."""
    required = schema.get("required", [])
    fields = {
        name: field if name in required else _or_empty(field)
        for name, field in schema["properties"].items()
    }
    for field in fields.values():
        # A pattern allows boards of other names, too, and says nothing of what they are.
        for pattern, board in field.pop("patternProperties", {}).items():
            field |= {"propertyNames": {"pattern": pattern}}
            field |= {"additionalProperties": _or_empty(board)}
    kept = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return {**kept, "properties": fields}


def _or_empty(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in ("title", "default")}
    notes = {key: kept.pop(key) for key in ("description",) if key in kept}
    return {**notes, "anyOf": [kept, {"type": "null"}]}


# The specs: what may stand in the file. A field's description completes "expected ...".

_ONE, _SEVERAL = "<one>", "<several>"


def _cores(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        return count_or_list(value)
    if isinstance(value, list) and value and all(isinstance(core, str) for core in value):
        return each_once(core_list(",".join(value)))
    raise ValueError(f"found {described(value)}")


_CORE_LIST = {"type": "string", "pattern": CORES_PATTERN}
_CORES_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        _CORE_LIST,
        {
            "type": "array",
            "items": {"anyOf": [{"type": "integer", "minimum": 0}, _CORE_LIST]},
            "minItems": 1,
        },
    ]
}

_SCALAR = {"type": ["string", "number", "boolean"]}
"""To an editor ``1.10`` is a number and ``no`` is false; the reader takes both as text."""


def _valid(kind: str) -> AfterValidator:
    return AfterValidator(partial(check_name, kind))


def _named(kind: str) -> WithJsonSchema:
    return WithJsonSchema({**_SCALAR, "pattern": PATTERNS[kind]})


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        """Take ``gpu:`` with nothing after it as if it were not there."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            return value
        return {
            key: item
            for key, item in value.items()
            if item is not None or key not in cls.model_fields
        }


_Text = Annotated[str, WithJsonSchema(_SCALAR)]


_OPTIONS_SCHEMA = {
    "type": "object",
    "additionalProperties": _SCALAR,
    "propertyNames": {"not": {"enum": ["delegate", "provider", "plugin"]}},
}
_ENVIRONMENT_SCHEMA = {
    "type": "object",
    "additionalProperties": _SCALAR,
    "propertyNames": {"pattern": PATTERNS["variable"], "not": {"pattern": PATTERNS["taken"]}},
}


def _without_delegate(options: dict[str, str]) -> dict[str, str]:
    for name in ("delegate", "provider", "plugin"):
        if name in options:
            raise ValueError(f"the {name} belongs beside the options, not among them")
    return options


def _taken(value: str, info: ValidationInfo) -> str:
    """Check that the engine beside which a value stands takes one."""
    engine = info.data.get("engine")
    takers = [name for name, row in ENGINES.items() if info.field_name in row.platform_keys]
    if engine is not None and engine not in takers:
        does = f"{joined(takers)} {'does' if len(takers) == 1 else 'do'}"
        raise ValueError(f"the engine {engine} takes no {info.field_name}, only {does}")
    return value


def _with_provider(plugin: str, info: ValidationInfo) -> str:
    if not info.data.get("provider", plugin):
        raise ValueError("it also needs a provider")
    return plugin


_Engine = Annotated[str, _valid("engine"), _named("engine")]
_OfEngine = Annotated[str, AfterValidator(_taken)]


_ELEMENT_TYPES = (
    *("float32", "float16", "bfloat16", "float64"),
    *("int8", "uint8", "int16", "uint16", "int32", "int64"),
)


def _element_type(name: str) -> str:
    if name not in _ELEMENT_TYPES:
        raise ValueError(f"{quoted(name)} is no element type; known are {joined(_ELEMENT_TYPES)}")
    return name


class _AcceleratorSpec(_Spec):
    engine: Annotated[
        _Engine, Field(description="an inference engine, such as onnxruntime or litert")
    ]
    delegate: Annotated[_OfEngine, Field(description="the file of a delegate library")] = ""
    provider: Annotated[
        _OfEngine, Field(description="an execution provider, such as CUDA or OpenVINO")
    ] = ""
    plugin: Annotated[
        _OfEngine,
        AfterValidator(_with_provider),
        _valid("plugin"),
        _named("plugin"),
        Field(description="the package with the provider, such as onnxruntime-qnn, or its library"),
    ] = ""
    options: Annotated[
        dict[str, _Text],
        AfterValidator(_without_delegate),
        WithJsonSchema(_OPTIONS_SCHEMA),
        Field(description="names and values for the engine or its delegate"),
    ] = {}
    environment: Annotated[
        dict[Annotated[str, _valid("variable")], _Text],
        WithJsonSchema(_ENVIRONMENT_SCHEMA),
        Field(description="environment variables, such as `{VK_DRIVER_FILES: /path/icd.json}`"),
    ] = {}
    allow_fallback: Annotated[
        bool, Field(description="true or false: may other layers run on the CPU")
    ] = False
    types: Annotated[
        list[Annotated[_Text, AfterValidator(_element_type)]],
        Field(description="a list of the element types that it takes, such as [int8, uint8]"),
    ] = []


def _one_or_several(value: object) -> str:
    return _SEVERAL if isinstance(value, list) else _ONE


_Accelerators = Annotated[
    Annotated[_AcceleratorSpec, Tag(_ONE)] | Annotated[list[_AcceleratorSpec], Tag(_SEVERAL)],
    Discriminator(_one_or_several),
    Field(description="an accelerator, `{engine: litert, delegate: libdelegate.so}`, or a list"),
]
_Watts = Annotated[float | None, Field(ge=0, allow_inf_nan=False, description="watts, such as 2.5")]


_CLUSTER_CORES_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 0}, *_CORES_SCHEMA["anyOf"][1:]]}


class _ClusterSpec(_Spec):
    cores: Annotated[
        Annotated[
            tuple[int, ...],
            BeforeValidator(_cores),
            WithJsonSchema(_CLUSTER_CORES_SCHEMA),
        ],
        Field(description="cores such as 0-3, 7 or [4, 5, 6]"),
    ]
    kind: Annotated[_Text, Field(description="a kind of cores such as Cortex-A78")] = ""
    max_mhz: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="megahertz above 0, such as 2400"),
    ] = None


def _one_cluster(value: object) -> object:
    """Return a cluster as an object; a number stands for that core, not for so many."""
    cluster = value if isinstance(value, dict) else {"cores": value}
    cores = cluster.get("cores")
    return {**cluster, "cores": [cores]} if isinstance(cores, str) else cluster


_CLUSTERS_SCHEMA = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            *_CLUSTER_CORES_SCHEMA["anyOf"],
            {
                "type": "object",
                "properties": {
                    "cores": _CLUSTER_CORES_SCHEMA,
                    "kind": _SCALAR,
                    "max_mhz": {"type": "number", "exclusiveMinimum": 0},
                },
                "required": ["cores"],
                "additionalProperties": False,
            },
        ]
    },
}


def _disjoint(clusters: dict[str, _ClusterSpec]) -> dict[str, _ClusterSpec]:
    owners: dict[int, str] = {}
    for name, cluster in clusters.items():
        for core in cluster.cores:
            if core in owners:
                raise ValueError(f"core {core} is in {quoted(owners[core])} and {quoted(name)}")
            owners[core] = name
    return clusters


class _BoardSpec(_Spec):
    host: Annotated[
        Annotated[str, _valid("host"), _named("host")],
        Field(description="letters, digits and `.:_%-`, such as 192.168.1.11"),
    ] = ""
    user: Annotated[
        Annotated[str, _valid("user"), _named("user")],
        Field(description="letters, digits and `._-`, such as pi"),
    ] = ""
    arch: Annotated[_Text, Field(description="an architecture such as aarch64 or x86_64")] = ""
    python: Annotated[_Text, Field(description='a version of Python such as "3.11"')] = ""
    cores: Annotated[
        Annotated[tuple[int, ...], BeforeValidator(_cores), WithJsonSchema(_CORES_SCHEMA)] | None,
        Field(description="cores such as 0-5, [0, 1], or 6 for the first six"),
    ] = None
    clusters: Annotated[
        dict[str, Annotated[_ClusterSpec, BeforeValidator(_one_cluster)]],
        AfterValidator(_disjoint),
        WithJsonSchema(_CLUSTERS_SCHEMA),
        Field(description="cores by cluster, such as `{little: 0-3, big: 4-6, prime: 7}`"),
    ] = {}
    memory_mb: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="megabytes above 0, such as 8192"),
    ] = None
    engine: Annotated[
        _Engine,
        Field(description="the inference engine of CPU ranks, such as onnxruntime or litert"),
    ] = ""
    cpu: Annotated[
        _AcceleratorSpec | None,
        Field(description="how CPU ranks run, such as `{engine: onnxruntime, provider: XNNPACK}`"),
    ] = None
    gpu: _Accelerators = []
    npu: _Accelerators = []
    idle_w: _Watts = None
    busy_w: _Watts = None

    @model_validator(mode="after")
    def _covers_cores(self) -> _BoardSpec:
        """Check that clusters have the cores of the board, all of them."""
        grouped = {core for cluster in self.clusters.values() for core in cluster.cores}
        if grouped and self.cores is not None and (odd := grouped ^ {*self.cores}):
            core, missing = min(odd), min(odd) not in grouped
            where = "is in no cluster" if missing else "of a cluster is not among the cores"
            raise ValueError(f"core {core} {where}")
        return self


class _LinkSpec(_Spec):
    bandwidth_mbps: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="megabits per second, such as 1000")
    ]
    latency_ms: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="milliseconds, such as 0.2")
    ]
    wire: Annotated[
        Wire,
        Field(description=f"how float32 tensors are sent, {joined(WIRES, 'or')}"),
    ] = "none"
    compress: Annotated[
        Compression,
        Field(description=f"how messages are compressed, {joined(COMPRESSIONS, 'or')}"),
    ] = "none"


class _PairSpec(_LinkSpec):
    between: Annotated[
        list[str],
        Field(min_length=2, max_length=2, description="two boards, such as [edge01, edge02]"),
    ]


class _LinksSpec(_Spec):
    default: Annotated[
        _LinkSpec | None,
        Field(description="a link such as `{bandwidth_mbps: 1000, latency_ms: 0.2}`"),
    ] = None
    pairs: Annotated[
        list[_PairSpec],
        Field(description="a list of links, each with between, bandwidth_mbps and latency_ms"),
    ] = []


class _PlatformSpec(_Spec):
    boards: Annotated[
        dict[Annotated[str, _valid("board"), _named("board")], _BoardSpec],
        Field(min_length=1, description="boards by name, such as `edge01: {cores: 0-5}`"),
    ]
    links: Annotated[_LinksSpec, Field(description="default and pairs")] = _LinksSpec()


_SPECS: dict[str, type[_Spec]] = {
    "": _PlatformSpec,
    "boards": _BoardSpec,
    "clusters": _ClusterSpec,
    "cpu": _AcceleratorSpec,
    "gpu": _AcceleratorSpec,
    "npu": _AcceleratorSpec,
    "links": _LinksSpec,
    "default": _LinkSpec,
    "pairs": _PairSpec,
}
"""What the value of a field is; a board's own name is left out of the path to it."""


# From pydantic's errors to ours.


def _mistake(detail: ErrorDetails, name: str) -> Mistake:
    path = tuple(part for part in detail["loc"] if part not in (_ONE, _SEVERAL, "[key]"))
    spec, field = _field(path)
    expected = known_keys(spec.model_fields)
    if field in spec.model_fields:
        expected = f"expected {spec.model_fields[field].description}"
    if not path and detail["type"] != "value_error":
        return Mistake(name, f"the file holds {described(detail['input'])}", _SHAPE)
    if detail["loc"][-1:] == ("[key]",) and len(path) == 2:
        expected = BOARD_RULE
    elif path[:1] == ("boards",) and len(path) == 2:
        expected = "expected a board such as `{cores: 0-5}`"
    return spec_mistake(detail, path, partial(place_in, name), spec.model_fields, expected)


def _field(path: tuple[int | str, ...]) -> tuple[type[_Spec], str]:
    names = [part for part in path if isinstance(part, str)]
    if names[:1] == ["boards"]:
        del names[1:2]
    if names[1:2] == ["clusters"]:
        del names[2:3]
    for free in ("options", "environment"):
        if free in names[2:]:
            names = names[: names.index(free, 2) + 1]
    field, holder, *_ = [*reversed(names), "", ""]
    return _SPECS[holder], field


# What concerns several places of the file at once.


def _pair_mistakes(data: object, name: str) -> Iterator[Mistake]:
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
                    both = f"{quoted(first)} and {quoted(second)} have a link already"
                    expected = "expected every pair once; it holds in both directions"
                    yield Mistake(where, both, expected)
                seen.add(frozenset((first, second)))


# From specs to records.


def _platform(spec: _PlatformSpec, name: str) -> Platform:
    default, pairs = spec.links.default, spec.links.pairs
    return Platform(
        name=name,
        boards=tuple(_board(name, board) for name, board in spec.boards.items()),
        default_link=_link(default) if default is not None else None,
        links=tuple((pair.between[0], pair.between[1], _link(pair)) for pair in pairs),
    )


def _board(name: str, spec: _BoardSpec) -> Board:
    clusters = tuple(
        Cluster(name, tuple(sorted(cluster.cores)), cluster.kind, cluster.max_mhz)
        for name, cluster in spec.clusters.items()
    )
    return Board(
        name=name,
        host=spec.host or name,
        gpus=_accelerators(spec.gpu),
        npus=_accelerators(spec.npu),
        cpu=_accelerator(spec.cpu) if spec.cpu is not None else None,
        clusters=clusters,
        cores=spec.cores
        or tuple(sorted(core for cluster in clusters for core in cluster.cores))
        or None,
        **spec.model_dump(exclude={"host", "gpu", "npu", "cpu", "clusters", "cores"}),
    )


def _accelerators(specs: _AcceleratorSpec | list[_AcceleratorSpec]) -> tuple[Accelerator, ...]:
    several = specs if isinstance(specs, list) else [specs]
    return tuple(_accelerator(spec) for spec in several)


def _accelerator(spec: _AcceleratorSpec) -> Accelerator:
    named = {"delegate": spec.delegate, "provider": spec.provider, "plugin": spec.plugin}
    chosen = {name: value for name, value in named.items() if value}
    return Accelerator(
        engine=spec.engine,
        options=tuple({**chosen, **spec.options}.items()),
        environment=tuple(spec.environment.items()),
        allow_fallback=spec.allow_fallback,
        types=tuple(spec.types),
    )


def _link(spec: _LinkSpec) -> Link:
    return Link(spec.bandwidth_mbps, spec.latency_ms, spec.wire, spec.compress)
