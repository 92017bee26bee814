"""TensorFlow Lite operators: their names and settings, and what they keep from frame to frame.

A variable lives inside an interpreter. Layers that use the same one have to be in the same segment,
or each would have a variable of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rankslice.backend.runtime.job.records import RANDOM, VARIABLES, Facts
from rankslice.framework.graph import AttributeValue, Bond
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.tflite.schema import OPERATORS, SCALARS, TABLES
from rankslice.frontend.formats.tflite.shapes import dtype_of
from rankslice.frontend.formats.tflite.wire import Table

_CUSTOM = "CUSTOM"
_MAX_ATTRIBUTE = 256  # bytes


def operator_name(code: Table) -> str:
    number = operator_number(code)
    if number >= len(OPERATORS) or number < 0:
        return f"BUILTIN_{number}"
    name = OPERATORS[number]
    return code.text("custom_code") or name if name == _CUSTOM else name


def operator_number(code: Table) -> int:
    # Files made before there were 127 operators have it in the old field alone.
    return max(code.number("deprecated_builtin_code"), code.number("builtin_code"))


def attributes(operator: Table) -> Iterator[tuple[str, AttributeValue]]:
    for side in ("builtin_options", "builtin_options2"):
        options = operator.table(side)
        for item in TABLES[options.kind] if options else ():
            value = options.values.get(item.name) if options else None
            if options is None or not isinstance(value, bytes):
                continue
            if item.type == "string":
                yield item.name, options.text(item.name)
            elif item.type not in SCALARS or item.type in ("tensor", "subgraph"):
                continue
            elif not item.is_vector:
                yield item.name, options.number(item.name)
            elif len(value) <= _MAX_ATTRIBUTE:
                yield item.name, options.numbers(item.name)


_KEEPING = {
    VARIABLES: "VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE",
    "it keeps hash tables": ("CALL_ONCE HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE"),
    RANDOM: "RANDOM_STANDARD_NORMAL RANDOM_UNIFORM MULTINOMIAL STABLEHLO_RNG_BIT_GENERATOR",
    "it has custom operators, which may keep something": "CUSTOM STABLEHLO_CUSTOM_CALL",
}
"""What a run may leave for the next one -> the operators that leave it."""


def tflite_facts(root: Table) -> Facts:
    """Return the facts about a sub-model for boards; ``root``: its table ``Model``."""
    subgraphs = root.tables("subgraphs")
    numbers = {operator_number(code) for code in root.tables("operator_codes")}
    kept = [
        reason
        for reason, names in _KEEPING.items()
        if not numbers.isdisjoint(map(OPERATORS.index, names.split()))
    ]
    has_variables = any(
        tensor.number("is_variable")
        for subgraph in subgraphs
        for tensor in subgraph.tables("tensors")
    )
    return Facts(
        keeps=VARIABLES if has_variables else next(iter(kept), ""),
        operators=len(subgraphs[0].tables("operators")),
    )


_NEWEST = """
    2 COS DEPTH_TO_SPACE DIV EXP FAKE_QUANT FLOOR_MOD GREATER L2_NORMALIZATION LEAKY_RELU
      LESS_EQUAL LOG LOG_SOFTMAX RANGE REDUCE_PROD SELECT_V2 SIGN SIN SPACE_TO_DEPTH SQRT
      SQUARED_DIFFERENCE SQUEEZE SUM WHERE
    3 ARG_MAX ARG_MIN AVERAGE_POOL_2D BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN
      FLOOR_DIV GELU GREATER_EQUAL LESS LOGISTIC MAX_POOL_2D MEAN MIRROR_PAD REDUCE_MAX
      REDUCE_MIN RELU RELU6 RNN RSQRT SPARSE_TO_DENSE SPLIT_V TANH TILE TOPK_V2
      UNIDIRECTIONAL_SEQUENCE_RNN
    4 BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_TO LSTM MAXIMUM MINIMUM NOT_EQUAL
      RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT SOFTMAX SPACE_TO_BATCH_ND SVDF
      UNIDIRECTIONAL_SEQUENCE_LSTM
    5 ABS EMBEDDING_LOOKUP EQUAL FILL PACK SPLIT SUB TRANSPOSE_CONV
    6 ADD DYNAMIC_UPDATE_SLICE GATHER_ND PAD PADV2 QUANTIZE UNPACK
    7 CONCATENATION DEPTHWISE_CONV_2D
    8 CONV_2D GATHER MUL SLICE STRIDED_SLICE
    9 CAST DEQUANTIZE TRANSPOSE
    14 FULLY_CONNECTED
"""
"""Version of the operators that follow: the newest that LiteRT 2.3 runs; of others it is 1."""


def is_doubtful(root: Table) -> bool:
    """Return whether LiteRT may lack an operator of a model; ``root``: its table ``Model``."""
    newest, version = dict.fromkeys((_CUSTOM, "CALL", "CONCAT_EMBEDDINGS"), 0), 1
    for word in _NEWEST.split():
        if word.isdigit():
            version = int(word)
        else:
            newest[word] = version
    return any(
        number >= len(OPERATORS)
        or (name := OPERATORS[number]).startswith("STABLEHLO_")
        or code.number("version", 1) > newest.get(name, 1)
        for code in root.tables("operator_codes")
        for number in [operator_number(code)]
    )


_HANDLES = ("resource", "variant")


def states(subgraphs: Sequence[Table], operator: Table, bodies: Sequence[int]) -> Iterator[str]:
    """Yield the states, in words, that an operator of the main subgraph shares between frames."""
    yield from _own_states(operator)
    yield from _states_of_tensors(subgraphs[0], operator)
    for number in bodies:
        body = subgraphs[number]
        if any(tensor.number("is_variable") for tensor in body.tables("tensors")):
            yield f"the variables of subgraph {number}"
        for inner in body.tables("operators"):
            yield from _own_states(inner)


def _own_states(operator: Table) -> Iterator[str]:
    options = operator.table("builtin_options")
    if options and options.kind == "VarHandleOptions":
        name = f"{options.text('container')}/{options.text('shared_name')}".lstrip("/")
        yield f"the variable {quoted(name)}"
    if options and options.kind == "HashtableOptions":
        yield f"the hash table {options.number('table_id')}"


def _states_of_tensors(main: Table, operator: Table) -> Iterator[str]:
    tensors = main.tables("tensors")
    for side in ("inputs", "outputs", "intermediates"):
        for number in operator.numbers(side):
            if number < 0:
                continue
            tensor = tensors[number]
            described = f"tensor {number} {quoted(tensor.text('name'))}"
            if tensor.number("is_variable"):
                yield f"the variable {described}"
            elif dtype_of(tensor) in _HANDLES:
                yield f"the {dtype_of(tensor)} in {described}"


def bonds(layers: Sequence[str], kept: Sequence[frozenset[str]]) -> tuple[Bond, ...]:
    users: dict[str, list[str]] = defaultdict(list)
    for layer, states_of_layer in zip(layers, kept, strict=True):
        for state in sorted(states_of_layer):
            users[state].append(layer)
    return tuple(
        Bond(tuple(names), f"share {state}") for state, names in users.items() if len(names) > 1
    )
