"""Shapes that a TensorFlow Lite model's tensors have once its inputs have other sizes.

Only the operators themselves know what they make of a size. So LiteRT's interpreter is asked, in a
process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from rankslice.framework.engine_process import answer_of, write_answer
from rankslice.framework.errors import Mistake, RankSliceError

_PACKAGE = "ai_edge_litert"


Inputs: TypeAlias = Mapping[int, tuple[int, ...]]
"""The wanted shape of each input that has another one than in the file, by its tensor's number."""


def shapes_in_trials(path: Path, trials: Sequence[Inputs]) -> list[dict[int, tuple[int, ...]]]:
    """Return the shape of each tensor, by number, for a frame of zeros of each size.

    The result is empty for sizes that the model cannot have.

    Raises:
        RankSliceError: LiteRT is not installed, or cannot give the model the first sizes.
    """
    if find_spec(_PACKAGE) is None:
        found = "other sizes than the file's need LiteRT to follow them"
        raise RankSliceError(Mistake(str(path), found, "pip install 'rankslice[litert]'"))
    first, *others = _asked(path, trials)
    if isinstance(first, str):
        raise RankSliceError(Mistake(f"{path}: --shape", first))
    return [first, *({} if isinstance(shapes, str) else shapes for shapes in others)]


def shapes_in_a_run(path: Path) -> dict[int, tuple[int, ...]]:
    """Return the shape of each tensor for one frame of zeros of the sizes in the file.

    Empty where LiteRT is not installed, or cannot run the model.
    """
    (answer,) = _asked(path, [{}]) if find_spec(_PACKAGE) else [""]
    return {} if isinstance(answer, str) else answer


def _asked(path: Path, trials: Sequence[Inputs]) -> list[dict[int, tuple[int, ...]] | str]:
    request = json.dumps([list(inputs.items()) for inputs in trials])
    with TemporaryDirectory(prefix="rankslice") as folder:
        answers, failure = answer_of(__name__, (str(path), request), Path(folder), "LiteRT")
    return [
        _refused(shapes)
        if isinstance(shapes, str)
        else {int(number): tuple(shape) for number, shape in shapes}
        for shapes in answers or [failure] * len(trials)
    ]


def _refused(reason: str) -> str:
    return f"LiteRT cannot give the inputs these sizes: {reason}"


def _main(path: str, request: str, answer: str) -> None:
    answers: list[Any] = []
    for inputs in json.loads(request):
        try:
            answers.append(_shapes(path, inputs))
        except (ValueError, RuntimeError) as error:
            answers.append(f"{type(error).__name__}: {error}")
    write_answer(answer, answers)


def _shapes(path: str, inputs: Sequence[tuple[int, Sequence[int]]]) -> list[tuple[int, list[int]]]:
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        path,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    for number, shape in inputs:
        interpreter.resize_tensor_input(number, shape)
    interpreter.allocate_tensors()
    for details in interpreter.get_input_details():
        zeros = np.zeros(details["shape"], details["dtype"])
        interpreter.set_tensor(details["index"], zeros)
    # Sizes that a layer computes are known only after a run.
    interpreter.invoke()
    return [(item["index"], item["shape"].tolist()) for item in interpreter.get_tensor_details()]


if __name__ == "__main__":
    _main(*sys.argv[1:])
