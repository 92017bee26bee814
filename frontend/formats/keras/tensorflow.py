"""TensorFlow, imported when it is needed, and kept quiet."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.frontend.formats.keras.allowed_classes import APPLICATION_LAYERS
from rankslice.frontend.formats.keras.file import MISSING

_SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "",  # nothing is computed here for which a GPU is worth its start
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


def tensorflow(where: str) -> Any:
    """Return the module ``tensorflow``, whose Keras computes with TensorFlow.

    Raises:
        RankSliceError: TensorFlow is not installed, or is too old, or Keras has another back end.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        with quiet():
            import keras
            import tensorflow
    except ImportError:
        raise RankSliceError(Mistake(where, "needs TensorFlow to be read", MISSING)) from None
    if keras.config.backend() != "tensorflow":
        found = f"Keras computes with {keras.config.backend()} here"
        raise RankSliceError(Mistake(where, found, "set KERAS_BACKEND=tensorflow"))
    return tensorflow


def load_keras(path: Path) -> Any:
    """Return the model of a file that :func:`.check_keras_file` has passed."""
    tensorflow(str(path))
    import keras

    try:
        with quiet():
            return keras.saving.load_model(
                path, _application_layers(), compile=False, safe_mode=True
            )
    except Exception as error:  # Keras raises whatever comes up in a layer
        raise RankSliceError(
            Mistake(str(path), f"Keras {keras.__version__} cannot load it: {first_line(error)}")
        ) from None


def _application_layers() -> dict[str, Any]:
    """Return the layers that Keras has, and finds by their names only if it is given them."""
    layers = {
        name: getattr(import_module(module), name, None)
        for name, module in APPLICATION_LAYERS.items()
        if find_spec(module)
    }
    return {name: layer for name, layer in layers.items() if layer}


def first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings, logs and what libraries in C++ print to themselves."""
    absl = logging.getLogger("absl")
    level = absl.level
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.dup2(nowhere, 2)
            absl.setLevel(logging.ERROR)
            yield
    finally:
        absl.setLevel(level)
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
