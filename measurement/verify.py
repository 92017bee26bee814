"""Whether slicing changed a number: results against those of the unsliced model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.summary.rates import frames_text

TOLERANCE = 1e-5
"""Largest difference allowed for floating point outputs, relative to the reference's range."""

HALF_TOLERANCE = 5e-3
"""The same for float16: five times its precision. Engines that compute it in float32 leave out
roundings between layers, and a cut makes them."""


@dataclass(frozen=True, slots=True)
class Unconverted:
    """How results differ from those of the model without conversions between boards."""

    max_abs_diff: float
    max_rel_diff: float
    """As in :class:`Verification`."""
    rows: int
    """Rows of scores in the first output, of all frames: along its last axis of more than 1."""
    agreeing: int
    """Rows whose largest score is at the same place."""


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
    shapes_equal: bool = True
    """Whether each output has the reference's shape in each frame; else the values of such frames
    are not compared, and no difference is told of them."""
    first_frame: int | None = None
    first_difference: str = ""
    """Which tensor at a cut differs first in that frame, or why that is not known. Where outputs
    are inconclusive: what the tensors at cuts show."""
    inconclusive: bool = False
    """Whether no output differs, and some could hardly have: they are constant, for example."""
    unconverted: Unconverted | None = None
    """If something is converted between boards: what that changes. It is no part of the verdict."""

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values; a difference beyond all numbers is ``None``."""
        record: dict[str, Any] = _finite(asdict(self))
        return record


def _finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    return None if isinstance(values, float) and not np.isfinite(values) else values


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
        why = f"{what}: it fuses different layers in slices"
    elif verification.shapes_equal and share >= verification.max_rel_diff / 2:
        why = f"{what}, which is as much: it fuses different layers in slices"
    elif share:
        why = f"{what} only, so the difference has another cause"
    else:
        why = "the engine's optimisation does not change the unsliced model: there is another cause"
    hint = "--verify exact compares without it"
    return replace(verification, complaint=f"{verification.complaint}; {why}; {hint}")


class Difference:
    """How two versions of a tensor differ, collected frame by frame in constant memory."""

    def __init__(self) -> None:
        self.is_float = False
        self.low, self.high = np.inf, -np.inf
        self.absolute = 0.0
        """Largest difference of two values; infinite where one of them is no number."""
        self.other_shapes = 0
        """Frames with other shapes, whose values are not compared."""
        self.tolerance = 0.0
        """For its type; 0 of integers."""
        self.frames = 0
        self.first: int | None = None
        """The first frame that is not bit-equal."""

    def add(self, frame: int, expected: NDArray[Any], actual: NDArray[Any]) -> None:
        """Compare a frame: arrays of equal type. Values that are no numbers may be expected."""
        self.frames += 1
        self.is_float = expected.dtype.kind in "fc"
        if self.is_float:
            self.tolerance = HALF_TOLERANCE if expected.dtype == np.float16 else TOLERANCE
        is_equal = expected.shape == actual.shape and expected.tobytes() == actual.tobytes()
        if not is_equal and self.first is None:
            self.first = frame
        if expected.shape != actual.shape:
            self.other_shapes += 1
            return
        wide = _as_floats(expected)
        self._note_values(wide)
        if not is_equal:
            other = _as_floats(actual)
            unequal = wide != other
            with np.errstate(invalid="ignore"):
                distances = np.abs(wide[unequal] - other[unequal])
            # A NaN that slicing brought in must not vanish in a maximum.
            largest = float(np.nan_to_num(distances, nan=np.inf, posinf=np.inf).max(initial=0.0))
            self.absolute = max(self.absolute, largest)

    def _note_values(self, wide: NDArray[np.float64]) -> None:
        finite = wide[np.isfinite(wide)]
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))

    @property
    def bit_equal(self) -> bool:
        return self.first is None

    @property
    def relative(self) -> float:
        """Largest difference / (max - min of the first version over all frames).

        Infinite if that is constant.
        """
        if not self.absolute:
            return 0.0
        return self.absolute / (self.high - self.low) if self.high > self.low else np.inf

    def to_json(self) -> dict[str, Any]:
        names = ("frames", "bit_equal", "absolute", "relative", "first", "other_shapes")
        record: dict[str, Any] = _finite({name: getattr(self, name) for name in names})
        return record

    def differs(self, allowed: float | None) -> bool:
        """Whether values differ by more than a share of the range; ``None``: by the type's own."""
        if allowed is None and not self.is_float:
            # Integers beyond 2**53 may differ and yet be equal as floating point numbers.
            return not self.bit_equal
        return self.relative > (self.tolerance if allowed is None else allowed)

    def agree(self, *, exact: bool, tolerance: float | None = None) -> bool:
        """Whether both versions agree, by the rules of :meth:`Comparison.verdict`."""
        if self.bit_equal or exact:
            return self.bit_equal
        return not self.other_shapes and tolerance != 0 and not self.differs(tolerance)


def _as_floats(values: NDArray[Any]) -> NDArray[np.float64]:
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(flat.real.dtype).astype(np.float64)  # of complex ones both parts


def _first(frames: Iterable[int | None]) -> int | None:
    return min((frame for frame in frames if frame is not None), default=None)


class _OutputComparison(Difference):
    """Differences of one output, and what its values prove."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.is_finite = self.is_saturated = self.is_empty = self.is_count = True
        self._shapes = ""
        self._first_shape: int | None = None
        self._peaks: list[tuple[int, float]] = []
        """Each frame that differs more than all before, and how much."""

    def add(self, frame: int, expected: NDArray[Any], actual: NDArray[Any]) -> None:
        before = self.absolute
        super().add(frame, expected, actual)
        self.is_empty &= not expected.size
        if self.absolute > before:
            self._peaks.append((frame, self.absolute))
        if expected.shape != actual.shape and self._first_shape is None:
            self._first_shape = frame
            self._shapes = (
                f"output {self.name!r} has shape {list(actual.shape)} in frame {frame}; the"
                f" unsliced model's has shape {list(expected.shape)}"
            )

    def _note_values(self, wide: NDArray[np.float64]) -> None:
        super()._note_values(wide)
        self.is_finite &= bool(np.isfinite(wide).all())
        if not self.is_finite or not wide.size:
            return
        low, high = float(wide.min()), float(wide.max())
        self.is_count &= wide.size == 1 and low.is_integer()
        margin = 1e-6 * (high - low)
        inside = (wide > low + margin) & (wide < high - margin)
        self.is_saturated &= wide.size > 2 and not inside.any()

    @property
    def is_constant(self) -> bool:
        return self.high <= self.low

    def fault(self, allowed: float | None) -> str:
        """Say how the output differs by more than a share of the range, if given; empty: not."""
        if self.other_shapes > 1:
            return f"{self._shapes} ({frames_text(self.other_shapes)} with other shapes)"
        if self.other_shapes:
            return self._shapes
        if not self.is_finite:
            return "" if self.bit_equal else f"output {self.name!r} is not bit-equal"
        if not self.is_empty and self.differs(allowed):
            return (
                f"output {self.name!r} differs by up to {self.absolute:.3g},"
                f" {self.relative:.3g} of its range"
            )
        return ""

    def weakness(self, *, others_vary: bool) -> str:
        """Say why equal values prove little; empty: they prove something.

        Args:
            others_vary: whether another output is not constant. Then one that counts may be: a
                detector may find as many objects as it has room for in every frame.
        """
        reason = ""
        if self.is_empty:
            reason = "empty in every frame"
        elif not self.is_finite:
            reason = "not finite"
        elif self.is_float and self.is_constant and not (self.is_count and others_vary):
            reason = "constant"
        elif self.is_float and self.is_saturated:
            reason = "saturated"
        if not reason or self.other_shapes:
            return ""
        return f"the unsliced model's output {self.name!r} is {reason}: inconclusive"

    def first_frame(self, allowed: float | None, *, exact: bool) -> int | None:
        if exact or (allowed is None and not self.is_float):
            differing = self.first
        else:
            share = self.tolerance if allowed is None else allowed
            limit = share * (self.high - self.low)
            differing = next((frame for frame, peak in self._peaks if peak > limit), None)
        return _first((self._first_shape, differing))


class Comparison:
    """Collects reference and result frame by frame, in constant memory."""

    def __init__(self, outputs: Sequence[str]) -> None:
        self._outputs = [_OutputComparison(name) for name in outputs]
        self._frames = 0

    def add(
        self,
        reference: Sequence[NDArray[Any]],
        actual: Sequence[NDArray[Any]],
        frame: int | None = None,
    ) -> None:
        """Compare the next frame, which may have a number: arrays of equal type per output."""
        frame = self._frames if frame is None else frame
        for output, *versions in zip(self._outputs, reference, actual, strict=True):
            output.add(frame, *versions)
        self._frames += 1

    def verdict(
        self,
        *,
        exact: bool,
        rounds: bool = False,
        splits: bool = False,
        tolerance: float | None = None,
    ) -> Verification:
        """Judge whether all frames agree.

        Args:
            exact: every bit must be equal; else floating point outputs may differ by
                :data:`TOLERANCE` of their range (float16: :data:`HALF_TOLERANCE`), and integers
                not at all.
            rounds: whether float16 values cross cuts, which rounds what engines do not.
            splits: whether layers are split: engines may add up parts in another order.
            tolerance: what may differ instead, as a share of the range; of integers, too.
        """
        outputs = self._outputs if self._frames else []
        others_vary = not all(output.is_constant for output in outputs)
        faults = [output.fault(tolerance) for output in outputs]
        weaknesses = (output.weakness(others_vary=others_vary) for output in outputs)
        pairs = zip(weaknesses, faults, strict=True)
        complaints = [weakness or fault for weakness, fault in pairs if weakness or fault]
        bit_equal = all(output.bit_equal for output in self._outputs)
        differs = any(faults) or not self._frames or (exact and not bit_equal)
        if not self._frames:
            complaints.append("no frame was compared")
        elif all(output.is_constant for output in self._outputs) and not complaints:
            complaints.append("all outputs of the unsliced model are constant: inconclusive")
        if exact and not bit_equal:
            complaints.append("results are not bit-equal to those of the unsliced model")
            if rounds:
                complaints.append(
                    "float16 values cross cuts, and engines that compute them in float32 do not"
                    " round them elsewhere, so use --verify without exact"
                )
            if splits:
                complaints.append(
                    "layers are split, and engines may add in another order in a part than in the"
                    " whole, so use --verify without exact"
                )
        first_frames = (output.first_frame(tolerance, exact=exact) for output in self._outputs)
        return Verification(
            passed=not complaints,
            bit_equal=bit_equal,
            max_abs_diff=max((output.absolute for output in self._outputs), default=0.0),
            max_rel_diff=max((output.relative for output in self._outputs), default=0.0),
            frames=self._frames,
            complaint="; ".join(complaints),
            first_frame=_first(first_frames),
            shapes_equal=not any(output.other_shapes for output in self._outputs),
            inconclusive=bool(complaints) and not differs,
        )


class ConversionEffect(Comparison):
    """Collects how results differ from those without conversions, frame by frame."""

    def __init__(self, outputs: Sequence[str]) -> None:
        super().__init__(outputs)
        self._rows = self._agreeing = 0

    def add(
        self,
        reference: Sequence[NDArray[Any]],
        actual: Sequence[NDArray[Any]],
        frame: int | None = None,
    ) -> None:
        super().add(reference, actual, frame)
        scores = reference[0], actual[0]
        classes = next((size for size in reversed(scores[0].shape) if size > 1), 0)
        if scores[0].shape == scores[1].shape and scores[0].size and classes:
            places = [values.reshape(-1, classes).argmax(axis=-1) for values in scores]
            self._rows += places[0].size
            self._agreeing += int((places[0] == places[1]).sum())

    def result(self) -> Unconverted:
        verdict = self.verdict(exact=False)
        return Unconverted(verdict.max_abs_diff, verdict.max_rel_diff, self._rows, self._agreeing)
