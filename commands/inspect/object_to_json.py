"""A model object as a JSON object; ``docs/formats.md`` describes it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rankslice.frontend.formats.tflite.object import ModelObject

FORMAT = "rankslice-object"
VERSION = 1


def object_to_json(found: ModelObject) -> dict[str, Any]:
    """Return all of a model object as a JSON object."""
    return {"format": FORMAT, "version": VERSION, **plain(asdict(found))}


def plain(value: Any) -> Any:
    """Return a value as JSON has it, which knows neither infinity nor tuples."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
