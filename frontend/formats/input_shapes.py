"""Whether the shapes that a user gives to a model's inputs fit the file, and which are missing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from rankslice.framework.errors import Mistake, nearest
from rankslice.framework.wording import joined, quoted

Sizes: TypeAlias = Sequence[int | str]
"""Sizes that a file declares for an input; text for one that it leaves open: its name, or ``?``."""


def shape_mistakes(
    where: str, declared: Mapping[str, Sizes | None], given: Mapping[str, tuple[int, ...]]
) -> Iterator[Mistake]:
    """Yield what contradicts the shapes that the user gives.

    Args:
        where: the model file, for messages.
        declared: by name of the input; ``None`` for one without a shape.
        given: sizes by name of the input.
    """
    for name, shape in given.items():
        here, sizes = f"{where}: input {quoted(name)}", declared.get(name)
        if name not in declared:
            yield Mistake(here, "the model has no such input", nearest(name, declared))
        elif sizes is not None and not _fits(sizes, shape):
            expected = f"it is declared as [{', '.join(map(str, sizes))}]"
            yield Mistake(here, f"does not fit the shape {shape}", expected)


def _fits(sizes: Sizes, shape: tuple[int, ...]) -> bool:
    return len(sizes) == len(shape) and all(
        isinstance(size, str) or size == given for size, given in zip(sizes, shape, strict=True)
    )


def open_shape_mistake(where: str, name: str, sizes: Sizes, example: int = 1) -> Mistake:
    """Return the mistake of an input with open sizes, to which the user gives none.

    Args:
        where: the model file, for messages.
        name: of the input.
        sizes: as the file declares them.
        example: what the message suggests for an open size.
    """
    texts = [
        str(index) if size == "?" else f"{index} ({size!r})"
        for index, size in enumerate(sizes)
        if isinstance(size, str)
    ]
    verb = "dimensions {} are" if len(texts) > 1 else "dimension {} is"
    option = shape_option(name, (example if isinstance(size, str) else size for size in sizes))
    return Mistake(
        f"{where}: input {quoted(name)}",
        f"{verb.format(joined(texts))} not fixed" if texts else "has no declared shape",
        f"give all its sizes, for example: {option}",
    )


def shape_option(name: str, sizes: Iterable[int]) -> str:
    """Return what to write on the command line to give sizes to an input."""
    given = f"{name}={','.join(map(str, sizes))}"
    return f"--shape {shlex.quote(given)}"
