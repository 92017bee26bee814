"""Sizes of a model's inputs: what the file declares, and what a user gives where it is open."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from rankslice.framework.errors import Mistake, nearest, raise_mistakes
from rankslice.framework.wording import joined, quoted, size_option


@dataclass(frozen=True, slots=True)
class GivenSizes:
    """What is given of a model that its file leaves open.

    Sizes are by the name of an input, of any other tensor, or of a size that has a name itself. The
    name of a size (``seq``) comes with one number: that size.
    """

    fixed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Sizes of all frames, of inputs and named sizes."""
    at_most: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The largest sizes of any frame: they stay open."""
    signature: str = ""
    """Of a SavedModel: which of its functions is the model; empty for the usual one."""

    def __bool__(self) -> bool:
        return bool(self.options)

    @property
    def options(self) -> tuple[str, ...]:
        values = {
            "--shape": self.fixed,
            "--at-most": self.at_most,
            "--signature": self.signature,
        }
        return tuple(option for option, value in values.items() if value)


NO_SIZES = GivenSizes()


def given_sizes(
    fixed: Mapping[str, tuple[int, ...]],
    at_most: Mapping[str, tuple[int, ...]],
    signature: str = "",
) -> GivenSizes:
    """Raise unless each name has sizes once, and none is zero."""
    raise_mistakes(
        Mistake(f"--shape {name}", "--at-most gives sizes of the same name", "leave one out")
        for name in fixed
        if name in at_most
    )
    raise_mistakes(
        Mistake(f"{option} {name}", f"found {list(sizes)}", "expected sizes of 1 or more")
        for option, given in (("--shape", fixed), ("--at-most", at_most))
        for name, sizes in given.items()
        if 0 in sizes
    )
    return GivenSizes(fixed, at_most, signature)


Sizes: TypeAlias = Sequence[int | str]
"""Sizes that a file declares for an input; text for one that it leaves open: its name, or ``?``."""

_StandIn = TypeVar("_StandIn")

_EXAMPLE_BOUND = 64
_AN_IMAGE = (1, 3, 224, 224)


@dataclass(frozen=True, slots=True)
class InputSizes:
    """Sizes of a model's inputs, some of them open."""

    shapes: Mapping[str, tuple[int, ...]]
    """By the name of the input: its sizes, the largest where they are open."""
    symbols: Mapping[str, tuple[str, ...]]
    """By the name of the input: the names of its open sizes, as
    :attr:`rankslice.framework.graph.Tensor.symbols` has them."""
    others: Mapping[str, tuple[int, ...]]
    """Bounds that were given for names which are neither an input's nor an open size's."""

    @property
    def bounds(self) -> dict[str, int]:
        return {
            symbol: size
            for name, symbols in self.symbols.items()
            for symbol, size in zip(symbols, self.shapes[name], strict=False)
            if symbol
        }


def settle_inputs(
    where: str, declared: Mapping[str, Sizes | None], given: GivenSizes, example: int = 1
) -> tuple[InputSizes, list[Mistake]]:
    """Return the sizes of all inputs as far as they are known, and what is wrong or missing.

    An open size without a name gets one of its own: ``images.2``. One with a name holds for all
    inputs that name it. One that is at most 1 is fixed.

    Args:
        declared: sizes by the name of the input; ``None`` for one without a shape.
        example: what messages suggest for an open size.
    """
    settling = _Settling(where, declared, given)
    settling.take(given.fixed, "--shape", settling.fixed)
    settling.take(given.at_most, "--at-most", settling.bounds)
    settling.compare()
    return settling.result(example), settling.mistakes


class _Settling:
    """Finds the sizes of the inputs of one model."""

    def __init__(self, where: str, declared: Mapping[str, Sizes | None], given: GivenSizes) -> None:
        self.mistakes: list[Mistake] = []
        self.fixed: dict[str, int] = {}
        """Values of sizes by their names; so in the next."""
        self.bounds: dict[str, int] = {}
        self._where = where
        self._declared = declared
        taken = {size for sizes in declared.values() for size in sizes or () if size != "?"}
        self._sizes: dict[str, Sizes | None] = {}
        for name, sizes in declared.items():
            given_here = given.fixed.get(name) or given.at_most.get(name)
            if sizes is None and given_here is not None:
                sizes = ["?"] * len(given_here)
            self._sizes[name] = None if sizes is None else _named(name, sizes, taken)
        sizes_of_all = (size for sizes in self._sizes.values() for size in sizes or ())
        self._symbols = {size for size in sizes_of_all if isinstance(size, str)}
        self._others: dict[str, tuple[int, ...]] = {}

    def take(
        self, given: Mapping[str, tuple[int, ...]], option: str, values: dict[str, int]
    ) -> None:
        for name, shape in given.items():
            # One number for an input of several sizes can only mean a size of the same name.
            is_size = name in self._symbols and len(shape) == 1
            if name in self._declared and not (is_size and len(self._sizes[name] or shape) > 1):
                self._take_input(name, shape, values)
            elif name in self._symbols:
                self._take_symbol(name, shape, option, values)
            elif option == "--at-most":
                self._others[name] = shape
            else:
                here = f"{self._where}: input {quoted(name)}"
                known = [*self._declared, *self._symbols]
                self.mistakes.append(
                    Mistake(here, "the model has no such input", nearest(name, known))
                )

    def _take_input(self, name: str, shape: tuple[int, ...], values: dict[str, int]) -> None:
        here, sizes = f"{self._where}: input {quoted(name)}", self._sizes[name]
        assert sizes is not None
        if not admits(sizes, shape):
            expected = f"it is declared as [{', '.join(map(str, self._declared[name] or ()))}]"
            self.mistakes.append(Mistake(here, f"does not fit the shape {shape}", expected))
        for axis, (symbol, size) in enumerate(zip(sizes, shape, strict=False)):
            if isinstance(symbol, str) and values.setdefault(symbol, size) != size:
                found = f"dimension {axis} ({symbol!r}) is {size}"
                self.mistakes.append(Mistake(here, f"{found}, and {values[symbol]} elsewhere"))

    def _take_symbol(
        self, name: str, shape: tuple[int, ...], option: str, values: dict[str, int]
    ) -> None:
        here = f"{self._where}: size {quoted(name)}"
        if len(shape) > 1:
            expected = f"expected one number: {option} {name}={shape[0]}"
            self.mistakes.append(Mistake(here, f"does not fit the sizes {shape}", expected))
        elif values.setdefault(name, shape[0]) != shape[0]:
            self.mistakes.append(Mistake(here, f"is {shape[0]}, and {values[name]} elsewhere"))

    def compare(self) -> None:
        for symbol, size in self.fixed.items():
            if size > self.bounds.get(symbol, size):
                here = f"{self._where}: size {quoted(symbol)}"
                found = f"is {size} by --shape, and at most {self.bounds[symbol]} by --at-most"
                self.mistakes.append(Mistake(here, found, "leave one of them out"))

    def result(self, example: int) -> InputSizes:
        values = {**self.bounds, **self.fixed}
        is_open = {symbol: size > 1 and symbol not in self.fixed for symbol, size in values.items()}
        shapes: dict[str, tuple[int, ...]] = {}
        symbols: dict[str, tuple[str, ...]] = {}
        for name, sizes in self._sizes.items():
            if sizes is None:
                self.mistakes.append(
                    _open_mistake(self._where, name, (), _AN_IMAGE, values, example)
                )
                continue
            if any(size not in values for size in sizes if isinstance(size, str)):
                is_given = any(size in self.fixed or size in self.bounds for size in sizes)
                # One mistake is enough for an input to which sizes were given that do not fit.
                if not self.mistakes or not is_given:
                    declared = self._declared[name] or ()
                    self.mistakes.append(
                        _open_mistake(self._where, name, declared, sizes, values, example)
                    )
                continue
            shapes[name] = tuple(values[s] if isinstance(s, str) else s for s in sizes)
            names = tuple(s if isinstance(s, str) and is_open[s] else "" for s in sizes)
            symbols[name] = names if any(names) else ()
        return InputSizes(shapes, symbols, self._others)


def _named(name: str, sizes: Sizes, taken: Collection[int | str]) -> Sizes:
    named: list[int | str] = []
    for axis, size in enumerate(sizes):
        unused = f"{name}.{axis}"
        while unused in taken:
            unused += "'"
        named.append(unused if size == "?" else size)
    return named


def admits(declared: Sizes, shape: tuple[int, ...]) -> bool:
    """Return whether a shape has the sizes that a file declares; text or -1 admits any size."""
    return len(declared) == len(shape) and all(
        isinstance(known, str) or known in (-1, size)
        for known, size in zip(declared, shape, strict=True)
    )


def replace_open(
    shape: Sequence[int], symbols: Sequence[str], stand_in: _StandIn
) -> tuple[int | _StandIn, ...]:
    """Return a shape with ``stand_in`` in place of the open sizes, which are those with symbols."""
    pairs = zip(shape, symbols or ("",) * len(shape), strict=True)
    return tuple(stand_in if symbol else size for size, symbol in pairs)


def _open_mistake(
    where: str,
    name: str,
    declared: Sizes,
    sizes: Sizes,
    values: Mapping[str, int],
    example: int,
) -> Mistake:
    missing = [
        str(axis) if shown == "?" else f"{axis} ({shown!r})"
        for axis, (size, shown) in enumerate(zip(sizes, declared, strict=False))
        if isinstance(size, str) and size not in values
    ]
    verb = "dimensions {} are" if len(missing) > 1 else "dimension {} is"
    fixed, bounds = (
        [values.get(size, most) if isinstance(size, str) else size for size in sizes]
        for most in (example, max(example, _EXAMPLE_BOUND))
    )
    return Mistake(
        f"{where}: input {quoted(name)}",
        f"{verb.format(joined(missing))} not fixed" if missing else "has no declared shape",
        f"give all its sizes, for example: {size_option('--shape', name, fixed)}, or the largest"
        f" ones of any frame: {size_option('--at-most', name, bounds)}",
    )
