"""Layers of a ``.tflite`` file that a rank's engine cannot run: open sizes, TensorFlow's own.

A converter that may use operators of TensorFlow itself (``SELECT_TF_OPS``), which LiteRT does not
have, writes them as custom ones: ``FlexErf``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rankslice.backend.runtime.job import Rank
from rankslice.framework.engines import ENGINES
from rankslice.framework.errors import Mistake
from rankslice.framework.wording import listed
from rankslice.frontend.formats.tflite.reader import TfliteModel
from rankslice.frontend.partition.partition import Partition

_FLEX = "Flex"


def flex_mistakes(model: TfliteModel, cut: Partition, ranks: Sequence[Rank]) -> Iterator[Mistake]:
    """Yield the layers that need operators of TensorFlow which their rank's engine lacks.

    A delegate library may have them.
    """
    for placement in ranks:
        needed = {
            layer.name: flex
            for layer in cut.layers_of(placement.rank)
            if (flex := [name for name in model.operators[layer.name] if name.startswith(_FLEX)])
        }
        engine = ENGINES[placement.engine]
        if not needed or not engine.lacks_flex or "delegate" in dict(placement.options):
            continue
        operators = list(dict.fromkeys(name for names in needed.values() for name in names))
        one = len(needed) == 1
        layers = f"{'layer' if one else 'layers'} {listed(list(needed))}"
        yield Mistake(
            f"{model.path}: {layers}",
            f"{'needs' if one else 'need'} TensorFlow's own operators, which {engine.title} does"
            f" not have: {listed(operators)}",
            "convert the model without SELECT_TF_OPS",
        )


_CPU = "cpu"
_INTERPRETER = "interpreter"


def open_size_mistakes(path: Path, cut: Partition, ranks: Sequence[Rank]) -> Iterator[Mistake]:
    """Yield the ranks that exchange tensors of open sizes, which their accelerators cannot take."""
    for placement in ranks:
        used = _accelerates(placement)
        names = dict.fromkeys(
            tensor.name
            for segment in cut.segments
            if segment.rank == placement.rank
            for tensor in (*segment.inputs, *segment.outputs)
            if tensor.is_open
        )
        if used and names:
            title = ENGINES[placement.engine].title
            yield Mistake(
                f"{path}: rank {placement.rank} ({placement.key})",
                f"{used} of {title} takes fixed sizes only, but those of {listed(list(names))} may"
                " change from frame to frame",
                "map these layers to a CPU, or fix the sizes with --shape",
            )


def _accelerates(placement: Rank) -> str:
    options = dict(placement.options)
    if not ENGINES[placement.engine].accelerates_fixed_sizes_only:
        return ""
    if "delegate" in options:
        return f"the delegate {options['delegate']}"
    if placement.accelerator != _CPU:
        return f"the {placement.accelerator}"
    return "" if options.get("api", _INTERPRETER) == _INTERPRETER else "a compiled model"
