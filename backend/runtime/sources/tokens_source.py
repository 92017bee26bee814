"""Frames from text files of token numbers, a frame per line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from .json_lines_source import LinesSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions

_NAMES = ("input_ids", "input_tokens")
"""Of the input that gets the numbers."""
_NUMBERS = re.compile(rb"[ \t]*[0-9]{1,20}(?:[ \t]+[0-9]{1,20})*[ \t]*")
_BYTES_PER_TOKEN = 24
_MORE_BYTES = 1000


class TokensSource(LinesSource):
    """Whole numbers for models of texts.

    Inputs ``attention_mask``, ``token_type_ids`` and ``position_ids`` get ones, zeros and
    0, 1, 2, ... for them.
    """

    usage = ("FILE.txt",)
    suffixes = (".txt",)
    description = "a .txt file of tokens"

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        self._tokens = _token_input(inputs)
        for spec in inputs:
            _check(spec, self._tokens)
        super().__init__(options, inputs, _BYTES_PER_TOKEN * self._tokens.shape[-1] + _MORE_BYTES)

    def _values(self, line: bytes, name: str) -> list[NDArray[Any]]:
        import numpy as np

        if not _NUMBERS.fullmatch(line):
            raise JobError(
                f"{name} is {_shown(line)}; expected whole numbers with spaces between them"
            )
        numbers = [int(word) for word in line.split()]
        most = int(np.iinfo(self._tokens.dtype).max)
        if max(numbers) > most:
            raise JobError(f"{name} has {max(numbers)}; {self._tokens.dtype} ends at {most}")
        return [self._filled(spec, numbers) for spec in self._inputs]

    def _filled(self, spec: Tensor, numbers: list[int]) -> NDArray[Any]:
        import numpy as np

        count = len(numbers)
        values = numbers if spec is self._tokens else _FILLED[_plain(spec.name)](count)
        shape = (1,) * (len(spec.shape) - 1) + (count,)
        return np.array(values, spec.storage[0]).reshape(shape)


_FILLED: dict[str, Callable[[int], Sequence[int]]] = {
    "attention_mask": lambda count: [1] * count,
    "token_type_ids": lambda count: [0] * count,
    "position_ids": range,
}


def _plain(name: str) -> str:
    """Return the name of an input without what TensorFlow adds."""
    return name.removeprefix("serving_default_").partition(":")[0]


def _token_input(inputs: Sequence[Tensor]) -> Tensor:
    named = [spec for spec in inputs if _plain(spec.name) in _NAMES]
    others = [spec for spec in inputs if _plain(spec.name) not in _FILLED]
    whole = [spec for spec in named or others if spec.dtype.startswith(("int", "uint"))]
    if len(whole) != 1:
        names = [spec.name for spec in whole]
        raise JobError(
            "--input: a .txt file feeds models with one input of token numbers, such as"
            f" input_ids; this one has {names or 'none'}: give an .npz or .jsonl file with values"
            " for each"
        )
    return whole[0]


def _check(spec: Tensor, tokens: Tensor) -> None:
    name = repr(spec.name)
    if spec is not tokens and _plain(spec.name) not in _FILLED:
        raise JobError(
            f"--input: a .txt file has no values for model input {name}; it feeds the tokens,"
            f" {', '.join(_FILLED)}: give an .npz or .jsonl file with values for each input"
        )
    is_one = len(spec.shape) < 2 or spec.shape[0] == 1 or bool(spec.symbols and spec.symbols[0])
    if len(spec.shape) not in (1, 2) or not is_one or spec.storage[1] != spec.shape:
        raise JobError(
            f"--input: model input {name} of shape {list(spec.shape)} takes no tokens; expected"
            " the shape [1, n] or [n]"
        )


def _shown(line: bytes) -> str:
    text = line[:40].decode(errors="replace")
    return repr(text + "..." * (len(line) > 40)) if text else "empty"


SOURCE = TokensSource
