"""Names of classes that a model's file has."""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankslice.framework.errors import RankSliceError
from rankslice.session.build_folder import REFERENCE
from rankslice.views.run_text import labels_of

_KEY = "names"
"""Of the metadata, where Ultralytics writes ``{0: 'person', 1: 'bicycle', ...}``."""


def model_names(folder: Path) -> tuple[str, ...]:
    """Return the names of classes in the metadata of the model that was sliced.

    Returns:
        The names; empty if the model is not there any more, or has none.
    """
    from rankslice.frontend.formats import find_format

    model = (folder / REFERENCE).resolve()
    found = find_format(model)
    if found is None or not model.exists():
        return ()
    with suppress(RankSliceError):  # the sub-models do not need it
        return parsed_names(found.metadata(model).get(_KEY, ""))
    return ()


def parsed_names(text: str) -> tuple[str, ...]:
    """Return names from a list or dictionary, in JSON or as Python writes it; none: ``()``.

    Only literals are read, so nothing in the text is executed.
    """
    for parse in (json.loads, ast.literal_eval):
        value: Any = None
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            value = parse(text)
        if isinstance(value, (dict, list)):
            with suppress(ValueError, TypeError, IndexError):
                return labels_of(value)
    return ()
