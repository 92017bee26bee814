"""Tests that need TensorFlow: ``make test-keras`` runs them in an environment of their own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from rankslice.frontend.formats.keras.tensorflow import tensorflow

if find_spec("tensorflow") is not None:
    tensorflow("tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("tensorflow") is not None:
        return
    reason = "TensorFlow is not installed (extra: keras; run by `make test-keras`)"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))
