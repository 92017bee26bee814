"""LiteRT's interpreter with its operators timed: each frame runs on a compiled model in its place.

The profiler gives XNNPACK's kernels by duration and order, and operators that XNNPACK leaves by
begin, too. Here they get places in time, and the operators of the file that they compute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..figures.operator_profile import DeviceRuns, OperatorSpans, shapes_text
from ..job import Tensor
from ..job.records import VARIABLES
from ..sizes import Slot
from .litert_interpreter import InterpreterEngine, copy_output
from .litert_kernels import Kernel, KernelRun, ProfiledModel

_XNNPACK = "XNNPACK"
_RAN_ON = "a compiled model of LiteRT"
_PRODUCT = "Convolution"
_IS_PRODUCT = ("Fully Connected", "Dynamic Fully Connected", _PRODUCT)
"""Kernels of convolutions and matrix products: convolutions of 1 x 1 become products."""
_MADE_BY = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), _PRODUCT),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), "Static Reshape"),
    **dict.fromkeys(("PAD", "PADV2"), "Constant Pad"),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), "Convert"),
    **dict.fromkeys(("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"), "Clamp"),
    **dict.fromkeys(("STRIDED_SLICE", "SPLIT"), "Slice"),
    "SUB": "Subtract",
    "MUL": "Multiply",
    "DIV": "Divide",
    "NEG": "Negate",
    "CEIL": "Ceiling",
    "MAX_POOL_2D": "Max Pooling",
    "AVERAGE_POOL_2D": "Average Pooling",
    "TRANSPOSE_CONV": "Deconvolution",
    "BATCH_MATMUL": "Batch Matrix Multiply",
    "LOGISTIC": "Sigmoid",
    "CONCATENATION": "Copy",
    "SQRT": "Square Root",
    "RSQRT": "Reciprocal Square Root",
}
"""Operator of TensorFlow Lite -> XNNPACK's name of what computes it, where that is another word."""


@dataclass(frozen=True, slots=True)
class Operator:
    kind: str
    name: str
    """Of its first output."""
    shapes: str
    """``1x8x8x1, 24x3x3x1 -> 1x8x8x24``"""


@dataclass(frozen=True, slots=True)
class PlacedKernel:
    name: str
    operator: int
    """Its place among those of the file; -1: unknown."""
    begin_ns: int
    duration_ns: int


class ProfiledEngine(InterpreterEngine):
    """An interpreter that leaves runs to a compiled model where LiteRT can profile that.

    Models with open sizes or with variables run on the interpreter, unprofiled.
    """

    _profiled: ProfiledModel | None = None

    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        super().load(path, inputs, outputs)
        is_open = any(spec.is_open for spec in (*inputs, *outputs)) or self._row_lists()
        if is_open or self._settings.facts.keeps == VARIABLES:
            return
        sides = self._tensors("input", "shape"), self._tensors("output", "shape")
        with contextlib.suppress(JobError):  # then the engine reports no operators
            self._profiled = ProfiledModel(path, self._settings.threads, *sides)

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        if self._profiled is None:
            super().run(inputs, outputs)
            return
        arrays = self._profiled.arrays
        for number, values in zip(self._inputs, inputs, strict=True):
            np.copyto(arrays[number], values, casting="no")
        self._profiled.run()
        for number, target in zip(self._outputs, outputs, strict=True):
            copy_output(arrays[number], target)

    def operators(self) -> OperatorSpans | None:
        if self._profiled is None:
            return None
        return spans_of(self._profiled.runs(), self._operators())

    def _operators(self) -> list[Operator]:
        tensors = {int(item["index"]): item for item in self._interpreter.get_tensor_details()}

        def shapes(numbers: Sequence[int]) -> list[Sequence[int]]:
            return [tensors[int(n)]["shape"] for n in numbers if int(n) in tensors]

        return [
            Operator(
                node["op_name"],
                str(tensors.get(int(node["outputs"][0]), {}).get("name", "")),
                shapes_text(shapes(node["inputs"]), shapes(node["outputs"])),
            )
            for node in self._nodes() or ()
            if node["op_name"] != "DELEGATE" and len(node["outputs"])
        ]

    def close(self) -> None:
        if self._profiled is not None:
            self._profiled.close()
            self._profiled = None
        super().close()


def spans_of(runs: Sequence[KernelRun], operators: Sequence[Operator]) -> OperatorSpans:
    """Return when operators and kernels ran, in the order of the runs.

    A kernel of which only the duration is known follows the one before it; what is left of the time
    until the next known begin lies before and behind them in equal parts.
    """
    known: dict[tuple[str, ...], list[int]] = {}
    names: dict[tuple[str, str, str], int] = {}
    kernel_names: dict[str, int] = {}
    spans, device, slack_ns = [], [], []
    for run in runs:
        flat = _outermost(run.kernels)
        tags = tuple(kernel.name for kernel in flat)
        if tags not in known:
            known[tags] = operators_of(tags, [operator.kind for operator in operators])
        placed = _placed(run, flat, known[tags])
        device.append(
            tuple(
                (kernel_names.setdefault(kernel.name, len(kernel_names)), kernel.begin_ns, ns)
                for kernel in placed
                if (ns := kernel.duration_ns)
            )
        )
        taken = sum(kernel.duration_ns for kernel in placed)
        slack_ns.append(max(0, 1000 * run.duration_us - taken))
        for place, group in groupby(placed, key=lambda kernel: kernel.operator):
            kernels = list(group)
            key = _entry(operators[place] if place >= 0 else None, kernels)
            duration = sum(kernel.duration_ns for kernel in kernels)
            number = names.setdefault(key, len(names))
            spans.append((number, kernels[0].begin_ns // 1000, duration // 1000))
    return OperatorSpans(
        names=tuple(name for name, _, _ in names),
        spans=tuple(spans),
        runs=tuple((run.begin_us, run.duration_us) for run in runs),
        device=DeviceRuns(_XNNPACK, False, tuple(kernel_names), tuple(device), tuple(slack_ns)),
        shapes=tuple(shapes for _, shapes, _ in names),
        kernels=tuple(kernels for _, _, kernels in names),
        ran_on=_RAN_ON,
    )


def _entry(operator: Operator | None, kernels: Sequence[PlacedKernel]) -> tuple[str, str, str]:
    """Name, shapes and kernels of one row."""
    ran = " + ".join(dict.fromkeys(kernel.name for kernel in kernels))
    if operator is None:
        return ran, "", ran
    return f"{operator.kind} {operator.name}".strip(), operator.shapes, ran


def _outermost(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Leave out what ran inside an operator, as in the body of a WHILE."""
    kept: list[Kernel] = []
    end_us = 0
    for kernel in kernels:
        if end_us and (kernel.begin_us is None or kernel.begin_us < end_us):
            continue
        end_us = 0
        kept.append(kernel)
        if kernel.begin_us is not None and kernel.name in ("WHILE", "IF"):
            end_us = kernel.begin_us + kernel.duration_us
    return kept


def _placed(run: KernelRun, kernels: Sequence[Kernel], places: Sequence[int]) -> list[PlacedKernel]:
    placed: list[PlacedKernel] = []
    now = 1000 * run.begin_us
    numbered = list(zip(kernels, places, strict=True))
    for has_begin, group in groupby(numbered, key=lambda pair: pair[0].begin_us is not None):
        stretch = list(group)
        if not has_begin:
            after = numbered[len(placed) + len(stretch) :]
            end = after[0][0].begin_us if after else run.begin_us + run.duration_us
            taken = sum(kernel.duration_us for kernel, _ in stretch)
            now += max(0, 1000 * ((end or 0) - taken) - now) // 2
        for kernel, place in stretch:
            begin = now if kernel.begin_us is None else 1000 * kernel.begin_us
            placed.append(PlacedKernel(kernel.name, place, begin, 1000 * kernel.duration_us))
            now = begin + 1000 * kernel.duration_us
    return placed


def operators_of(kernels: Sequence[str], operators: Sequence[str]) -> list[int]:
    """Return which operator each kernel computes, by its place; -1: there is none to tell.

    XNNPACK runs a model's operators in order, some as several kernels and some as none. Kernels
    whose kind is that of an operator are matched in order; those between two matches belong to the
    operators between them, in order, or else to the operator before them.
    """
    made = [_letters(_MADE_BY.get(kind, kind)) for kind in operators]
    words = [name.partition(" (")[0] for name in kernels]
    ran = [_letters(_PRODUCT if word in _IS_PRODUCT else word) for word in words]
    blocks = SequenceMatcher(None, ran, made, autojunk=False).get_matching_blocks()
    places: list[int] = []
    next_operator = 0
    for block in blocks:
        between = iter(range(next_operator, block.b))
        last = next_operator - 1
        for _ in range(len(places), block.a):
            last = next(between, last)
            places.append(last)
        places.extend(range(block.b, block.b + block.size))
        next_operator = block.b + block.size
    return places


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalpha())
