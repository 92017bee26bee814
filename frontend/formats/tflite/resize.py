"""Shapes that a TensorFlow Lite model's tensors have once its inputs have other sizes.

Only the operators themselves know what they make of a size. So LiteRT's interpreter is asked, in a
process of its own: a file that makes it crash does no harm, and its memory is given back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError

_PACKAGE = "ai_edge_litert"
_PATIENCE_S = 300


def resized_shapes(path: Path, inputs: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Return the shape of each tensor of the main subgraph, by number, for one frame of zeros.

    Args:
        path: the model file.
        inputs: the wanted shape of each input that has another one than in the file, by its
            tensor's number.

    Raises:
        RankSliceError: LiteRT is not installed, or cannot give the model these sizes.
    """
    if find_spec(_PACKAGE) is None:
        found = "other sizes than the file's need LiteRT to follow them"
        raise RankSliceError(Mistake("--shape", found, "pip install 'rankslice[litert]'"))
    shapes = _asked(path, inputs)
    if isinstance(shapes, str):
        raise RankSliceError(Mistake(f"{path}: --shape", shapes))
    return shapes


def shapes_in_a_run(path: Path) -> dict[int, tuple[int, ...]]:
    """Return the shape of each tensor for one frame of zeros of the sizes in the file.

    Empty where LiteRT is not installed, or cannot run the model.
    """
    found = _asked(path, {}) if find_spec(_PACKAGE) else {}
    return {} if isinstance(found, str) else found


def _asked(path: Path, inputs: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]] | str:
    """Return the shape of each tensor, or what went wrong."""
    command = [sys.executable, "-m", __name__, str(path), json.dumps(list(inputs.items()))]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"LiteRT did not end within {_PATIENCE_S} s"
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"it ended with code {ended.returncode}"]
        return f"LiteRT cannot give the inputs these sizes: {lines[-1]}"
    return {int(number): tuple(shape) for number, shape in json.loads(ended.stdout)}


def _main(path: str, inputs: str) -> None:
    """Print the shapes as JSON; what goes wrong ends the process with a traceback."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        path,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    for number, shape in json.loads(inputs):
        interpreter.resize_tensor_input(number, shape)
    interpreter.allocate_tensors()
    for details in interpreter.get_input_details():
        zeros = np.zeros(details["shape"], details["dtype"])
        interpreter.set_tensor(details["index"], zeros)
    # Sizes that a layer computes are known only after a run.
    interpreter.invoke()
    shapes = [(item["index"], item["shape"].tolist()) for item in interpreter.get_tensor_details()]
    print(json.dumps(shapes))


if __name__ == "__main__":
    _main(*sys.argv[1:])
