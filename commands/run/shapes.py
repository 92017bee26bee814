"""The shapes of outputs that change from frame to frame, for people and files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankslice.backend.runtime.sinks.results import Results


def shapes_json(results: Results) -> dict[str, list[list[int]]]:
    """Return the shapes of each open output by its name: one for each frame."""
    return {
        spec.name: [list(shape) for shape in results.shapes(output)]
        for output, spec in enumerate(results.outputs)
        if spec.is_open
    }


def shape_lines(results: Results) -> Iterator[str]:
    """Yield for each open output which sizes it had: ``output boxes: 0 to 37 x 4``."""
    if not len(results):
        return
    for output, spec in enumerate(results.outputs):
        if spec.is_open:
            sizes = results.records[f"shape_{output}"]
            ends = zip(sizes.min(axis=0).tolist(), sizes.max(axis=0).tolist(), strict=True)
            texts = [str(low) if low == high else f"{low} to {high}" for low, high in ends]
            yield f"output {spec.name}: {' x '.join(texts)}"
