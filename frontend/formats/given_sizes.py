"""What a user says of sizes that a model file leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rankslice.framework.errors import Mistake, raise_mistakes


@dataclass(frozen=True, slots=True)
class GivenSizes:
    """Sizes by the name of an input, of any other tensor, or of a size that has a name itself.

    The name of a size (``seq``) comes with one number: that size.
    """

    fixed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Sizes of all frames, of inputs and named sizes."""
    at_most: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The largest sizes of any frame: they stay open."""

    def __bool__(self) -> bool:
        return bool(self.fixed or self.at_most)

    @property
    def options(self) -> tuple[str, ...]:
        given = {"--shape": self.fixed, "--at-most": self.at_most}
        return tuple(option for option, sizes in given.items() if sizes)


NO_SIZES = GivenSizes()
"""What a user says who says nothing."""


def given_sizes(
    fixed: Mapping[str, tuple[int, ...]], at_most: Mapping[str, tuple[int, ...]]
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
    return GivenSizes(fixed, at_most)
