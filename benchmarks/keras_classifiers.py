"""Keras's networks as classifiers whose answers mean something, without a download.

All layers but the last have drawn weights, and normalisations the statistics of real images. The
last one is fitted to tell which tile of :mod:`photographs` an image shows.

With drawn weights a deep network usually is chaotic: every layer makes small differences larger, so
that images of one tile end up as far apart as others, and rounding decides the answers. Here
normalisations add a constant, so that most values pass the activation functions, and differences
remain what they are.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from photographs import CLASSES, photograph_crops

from rankslice.networks.keras_zoo import (
    NETWORKS,
    draft_of,
    drawn_network,
    imported_tensorflow,
    keras_file,
)

RECIPE = 1
"""Version of the images and the fit, part of the file names: raise it if they change."""

_SHIFT = 2.0
"""What normalisations add, in standard deviations."""
_FITTING, _STATISTICS, _PART = 240, 24, 12
"""How many frames the last layer is fitted to and the statistics are of, and how many are computed
at a time."""
_PENALTY = 0.1
"""Of large weights, as a share of the mean square of the features."""


def keras_classifier(name: str, folder: Path | None = None) -> Path:
    """Return the ``.keras`` file of a network that tells twelve tiles of photographs apart.

    Its input is a frame of :func:`classifier_frames`, its output a score per tile, [1, 12], the
    answer being the largest.

    Args:
        name: one of :func:`rankslice.networks.keras_zoo.keras_names`.
        folder: where the file lies, made if needed; the cache folder unless given.

    Raises:
        RankSliceError: there is no such network, or TensorFlow or scikit-learn is not installed.
    """
    target = keras_file(name, folder=folder).with_name(f"{name}-photographs-c{RECIPE}.keras")
    if not target.exists():
        with draft_of(target) as draft, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras warns of inputs that are not in a list
            _fitted(name).save(draft)
    return target


def classifier_frames(
    name: str, count: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return frames for :func:`keras_classifier`, [count, height, width, 3], and their tiles.

    Seed 0 gives those to which it was fitted.
    """
    network = NETWORKS[name]
    frames, labels = photograph_crops(count, network.size, seed)
    if not network.takes_pixels:
        frames -= 127.5
        frames /= 64
    return frames, labels


def _fitted(name: str) -> Any:
    """Return the Keras model with another last layer, fitted to tell tiles apart."""
    keras = imported_tensorflow().keras
    frames, labels = classifier_frames(name, _FITTING, 0)
    model = drawn_network(name, frames[:_STATISTICS], shift=_SHIFT)
    body = keras.Model(model.inputs, model.layers[-1].input)
    features = body.predict(frames, batch_size=_PART, verbose=0)
    weights = _ridge(features.astype(np.float64), np.eye(CLASSES)[labels])
    last = keras.layers.Dense(CLASSES, name="scores")
    fitted = keras.Model(model.inputs, last(body.output))
    last.set_weights(weights)
    return fitted


def _ridge(
    features: NDArray[np.float64], wanted: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the kernel and the bias of the least squares, with a penalty on large weights."""
    mean = features.mean(axis=0)
    centred = features - mean
    # In the space of the frames, of which there are fewer than features.
    products = centred @ centred.T
    penalty = _PENALTY * np.trace(products) / len(products)
    target = wanted - wanted.mean(axis=0)
    kernel = centred.T @ np.linalg.solve(products + penalty * np.eye(len(products)), target)
    return kernel, wanted.mean(axis=0) - mean @ kernel
