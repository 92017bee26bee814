"""Frames from text files of token numbers, a frame per line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from . import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot

_NAMES = ("input_ids", "input_tokens")
"""Of the input that gets the numbers."""
_NUMBERS = re.compile(rb"[ \t]*[0-9]{1,20}(?:[ \t]+[0-9]{1,20})*[ \t]*")
_BYTES_PER_TOKEN = 24
_MORE_BYTES = 1000


class TokensSource(Source):
    """Whole numbers, one frame per line, for models of texts; frames beyond the last begin again.

    Inputs ``attention_mask``, ``token_type_ids`` and ``position_ids`` get ones, zeros and
    0, 1, 2, ... for them.
    """

    usage = ("FILE.txt",)
    suffixes = (".txt",)
    description = "a .txt file of tokens"
    can_replay = True
    frames: int

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        """Check the model's inputs and all lines.

        Raises:
            JobError: an input gets no values from tokens, or a line does not fit.
        """
        from .lines import Lines, only_file

        self._path = only_file(options.inputs)
        self._inputs = inputs
        self._tokens = _token_input(inputs)
        for spec in inputs:
            _check(spec, self._tokens)
        longest = _BYTES_PER_TOKEN * self._tokens.shape[-1] + _MORE_BYTES
        self._lines = Lines(self._path, longest)
        for index in range(len(self._lines)):
            tokens = self._tokens_of(index)
            for spec in inputs:
                try:
                    spec.of_shape(_shape(spec, tokens))
                except JobError as error:
                    raise JobError(f"{self._lines.name(index)}: {error}") from None
        self.frames = len(self._lines) if options.frames is None else options.frames

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        """Write a line's numbers, and what follows from how many there are."""
        from ..sizes import shaped

        tokens = self._tokens_of(index % len(self._lines))
        for spec, slot in zip(self._inputs, slots, strict=True):
            values = tokens if spec is self._tokens else _FILLED[_plain(spec.name)](len(tokens))
            shaped(slot, _shape(spec, tokens))[...] = values

    def label(self, index: int) -> str:
        """Return file and line."""
        return f"{self._path.name}:{index % len(self._lines) + 1}"

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _tokens_of(self, index: int) -> NDArray[Any]:
        import numpy as np

        line = self._lines.read(index)
        if not _NUMBERS.fullmatch(line):
            raise JobError(
                f"{self._lines.name(index)} is {_shown(line)}; expected whole numbers with spaces"
                " between them"
            )
        numbers = [int(word) for word in line.split()]
        most = int(np.iinfo(self._tokens.dtype).max)
        if max(numbers) > most:
            raise JobError(
                f"{self._lines.name(index)} has {max(numbers)}; {self._tokens.dtype} ends at {most}"
            )
        return np.array(numbers, self._tokens.dtype)


_FILLED: dict[str, Callable[[int], Any]] = {
    "attention_mask": lambda count: 1,
    "token_type_ids": lambda count: 0,
    "position_ids": range,
}


def _plain(name: str) -> str:
    """Return the name of an input without what TensorFlow adds."""
    return name.removeprefix("serving_default_").partition(":")[0]


def _token_input(inputs: Sequence[Tensor]) -> Tensor:
    """Return the input that gets the numbers.

    Raises:
        JobError: there is none, or it is not clear which.
    """
    named = [spec for spec in inputs if _plain(spec.name) in _NAMES]
    others = [spec for spec in inputs if _plain(spec.name) not in _FILLED]
    whole = [spec for spec in named or others if spec.dtype.startswith(("int", "uint"))]
    if len(whole) != 1:
        found = [spec.name for spec in whole]
        raise JobError(
            "--input: a .txt file feeds models with one input of token numbers, such as"
            f" input_ids; this one has {found or 'none'}: give an .npz or .jsonl file with values"
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


def _shape(spec: Tensor, tokens: NDArray[Any]) -> tuple[int, ...]:
    return (1,) * (len(spec.shape) - 1) + tokens.shape


def _shown(line: bytes) -> str:
    text = line[:40].decode(errors="replace")
    return repr(text + "..." * (len(line) > 40)) if text else "empty"


SOURCE = TokensSource
