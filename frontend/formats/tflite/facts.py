"""What boards are told of a ``.tflite`` sub-model, by its operators."""

from __future__ import annotations

from rankslice.backend.runtime.job.facts import RANDOM, VARIABLES, Facts
from rankslice.frontend.formats.tflite.operators import operator_number
from rankslice.frontend.formats.tflite.schema import OPERATORS
from rankslice.frontend.formats.tflite.wire import Table

_KEEPING = {
    VARIABLES: "VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE",
    "it keeps hash tables": ("CALL_ONCE HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE"),
    RANDOM: "RANDOM_STANDARD_NORMAL RANDOM_UNIFORM MULTINOMIAL STABLEHLO_RNG_BIT_GENERATOR",
    "it has custom operators, which may keep something": "CUSTOM STABLEHLO_CUSTOM_CALL",
}
"""What a run may leave for the next one -> the operators that leave it."""


def tflite_facts(root: Table) -> Facts:
    """Return what boards are told of a sub-model; ``root``: its table ``Model``."""
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
