"""Whether slicing changed a number: results against those of the unsliced model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.quantities import frames_text

TOLERANCE = 1e-5
"""Largest difference allowed for floating point outputs, relative to the reference's range."""

HALF_TOLERANCE = 5e-3
"""The same for float16: five times its precision. Engines that compute it in float32 leave out
roundings between layers, and a cut makes them."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict over all frames and outputs."""

    passed: bool
    bit_equal: bool
    max_abs_diff: float
    max_rel_diff: float
    """Largest difference / (max - min of the reference output over all frames)."""
    frames: int
    complaint: str = ""
    """Why it did not pass."""
    shapes_equal: bool = True
    """Whether each output has the reference's shape in each frame; else the values of such frames
    are not compared, and no difference is told of them."""

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values; a difference beyond all numbers is ``None``."""
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def explained(verification: Verification, by_engine: Verification) -> Verification:
    """Return a verdict that says whether the engine's optimisation accounts for a difference.

    Engines merge layers and round less often then. Across a cut they merge others, or none.

    Args:
        verification: of a run that did not pass.
        by_engine: the unsliced model without that optimisation, compared with itself with it.
    """
    share = by_engine.max_rel_diff
    what = f"the engine's optimisation changes the unsliced model by {share:.3g} of the range"
    if not by_engine.shapes_equal:
        what = "the engine's optimisation changes shapes of the unsliced model, too"
        why = f"{what}: in slices it merges other layers"
    elif verification.shapes_equal and share >= verification.max_rel_diff / 2:
        why = f"{what}, which is as much: in slices it merges other layers"
    elif share:
        why = f"{what} only, so the difference has another cause"
    else:
        why = "the engine's optimisation does not change the unsliced model: there is another cause"
    hint = "--verify exact compares without it"
    return replace(verification, complaint=f"{verification.complaint}; {why}; {hint}")


class _OutputComparison:
    """Differences and range of one output."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_float = True
        self.tolerance = TOLERANCE
        self.is_finite = True
        self.is_saturated = True
        self.bit_equal = True
        self.low, self.high, self.difference = np.inf, -np.inf, 0.0
        self.is_empty = True
        self.is_count = True
        self.other_shapes = 0
        self.shape_complaint = ""

    def add(self, frame: int, reference: NDArray[Any], actual: NDArray[Any]) -> None:
        self.is_empty &= not reference.size
        if reference.shape != actual.shape:
            self._note_shapes(frame, reference, actual)
            return
        self.bit_equal &= reference.tobytes() == actual.tobytes()
        self.is_float = reference.dtype.kind in "fc"
        self.tolerance = HALF_TOLERANCE if reference.dtype == np.float16 else TOLERANCE
        wide = reference.astype(np.float64).reshape(-1)
        self.is_finite &= bool(np.isfinite(wide).all())
        if not self.is_finite or not wide.size:
            return
        low, high = float(wide.min()), float(wide.max())
        self.is_count &= wide.size == 1 and low.is_integer()
        self.low, self.high = min(self.low, low), max(self.high, high)
        difference = np.abs(wide - actual.astype(np.float64).reshape(-1)).max()
        # A NaN that slicing brought in must not vanish in a maximum.
        largest = np.inf if np.isnan(difference) else float(difference)
        self.difference = max(self.difference, largest)
        margin = 1e-6 * (high - low)
        inside = (wide > low + margin) & (wide < high - margin)
        self.is_saturated &= wide.size > 2 and not inside.any()

    def _note_shapes(self, frame: int, reference: NDArray[Any], actual: NDArray[Any]) -> None:
        self.bit_equal = False
        self.other_shapes += 1
        self.shape_complaint = self.shape_complaint or (
            f"output {self.name!r} has shape {list(actual.shape)} in frame {frame}; the unsliced"
            f" model's has shape {list(reference.shape)}"
        )

    @property
    def is_constant(self) -> bool:
        return self.high <= self.low

    @property
    def relative(self) -> float:
        return 0.0 if not self.difference else self.difference / max(self.high - self.low, 1e-300)

    def complaint(self, allowed: float | None, *, others_vary: bool) -> str:
        """Say what is wrong.

        Args:
            allowed: the share of the range that may differ, if given.
            others_vary: whether another output is not constant. Then one that counts may be: a
                detector may find as many objects as it has room for in every frame.
        """
        if self.other_shapes:
            more = f" ({frames_text(self.other_shapes)} with other shapes)"
            return self.shape_complaint + (more if self.other_shapes > 1 else "")
        if self.is_empty:
            what = f"the unsliced model's output {self.name!r}"
            return f"{what} is empty in every frame: it proves nothing"
        if not self.is_finite:
            return f"the unsliced model's output {self.name!r} is not finite: it proves nothing"
        if self.is_float and self.is_constant and not (self.is_count and others_vary):
            return f"the unsliced model's output {self.name!r} is constant: it proves nothing"
        if self.is_float and self.is_saturated:
            return f"the unsliced model's output {self.name!r} is saturated: it proves nothing"
        if self._differs(allowed):
            return (
                f"output {self.name!r} differs by up to {self.difference:.3g},"
                f" {self.relative:.3g} of its range"
            )
        return ""

    def _differs(self, allowed: float | None) -> bool:
        if allowed is not None:
            return self.relative > allowed
        # Integers beyond 2**53 may differ and yet be equal as floating point numbers.
        return self.relative > self.tolerance if self.is_float else not self.bit_equal


class Comparison:
    """Collects reference and result frame by frame, in constant memory."""

    def __init__(self, outputs: Sequence[str]) -> None:
        """Take the names of the model's outputs."""
        self._outputs = [_OutputComparison(name) for name in outputs]
        self._frames = 0

    def add(self, reference: Sequence[NDArray[Any]], actual: Sequence[NDArray[Any]]) -> None:
        """Compare the next frame: arrays of equal type per output."""
        for output, expected, found in zip(self._outputs, reference, actual, strict=True):
            output.add(self._frames, expected, found)
        self._frames += 1

    def verdict(
        self, *, exact: bool, rounds: bool = False, tolerance: float | None = None
    ) -> Verification:
        """Return whether all frames agree.

        Args:
            exact: every bit must be equal; else floating point outputs may differ by
                :data:`TOLERANCE` of their range (float16: :data:`HALF_TOLERANCE`), and integers
                not at all.
            rounds: whether float16 values cross cuts, which rounds what engines do not.
            tolerance: what may differ instead, as a share of the range; of integers, too.
        """
        outputs = self._outputs if self._frames else []
        others_vary = not all(output.is_constant for output in outputs)
        told = (output.complaint(tolerance, others_vary=others_vary) for output in outputs)
        complaints = [text for text in told if text]
        bit_equal = all(output.bit_equal for output in self._outputs)
        if not self._frames:
            complaints.append("no frame was compared")
        elif all(output.is_constant for output in self._outputs) and not complaints:
            complaints.append("all outputs of the unsliced model are constant: it proves nothing")
        if exact and not bit_equal:
            complaints.append("results are not bit-equal to those of the unsliced model")
            if rounds:
                complaints.append(
                    "float16 values cross cuts, and engines that compute them in float32 do not"
                    " round them elsewhere, so use --verify without exact"
                )
        return Verification(
            passed=not complaints,
            bit_equal=bit_equal,
            max_abs_diff=max((output.difference for output in self._outputs), default=0.0),
            max_rel_diff=max((output.relative for output in self._outputs), default=0.0),
            frames=self._frames,
            complaint="; ".join(complaints),
            shapes_equal=not any(output.other_shapes for output in self._outputs),
        )
