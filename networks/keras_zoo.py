"""Networks of real size as ``.tflite`` files without a download: Keras's own, with weights drawn.

Keras has the graphs of many image classifiers. Here some get seeded random weights, and their
normalisations the statistics of a few frames, so that activations stay of order one, and the
answers are neither certain nor the same for every frame. TensorFlow converts them; it is imported
only when a file has to be made.

Frames should be of order one: noise of unit variance, or standardised pixels. Integer models are
calibrated for these.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import Mistake, RankSliceError, nearest
from rankslice.networks.zoo import cache_folder

RECIPE = 1
"""Version of the weights and conversions, part of the file names: raise it if they change."""

KINDS = ("float32", "float16", "dynamic", "int8", "int16x8")
"""How the converter stores a network: whole in float32; weights in float16; weights in int8,
activations in float32; all in int8; activations in int16, weights in int8."""

SUFFIXES = ("keras", "h5")
"""Formats in which Keras itself stores a network."""

_FRAMES = 4
_SEED = 7
_SPREAD = 2.0
"""Standard deviation of the values that go into the last softmax."""


@dataclass(frozen=True, slots=True)
class Application:
    """A network of ``keras.applications``."""

    builder: str
    """Its function."""
    size: int = 224
    """Pixels of a side of its input."""
    takes_pixels: bool = False
    """Whether its first layers make numbers of order one of pixels from 0 to 255."""


NETWORKS = {
    "densenet121": Application("DenseNet121"),
    "efficientnetb0": Application("EfficientNetB0", takes_pixels=True),
    "mobilenetv2": Application("MobileNetV2"),
    "nasnetmobile": Application("NASNetMobile"),
    "resnet50": Application("ResNet50"),
}


def keras_names() -> tuple[str, ...]:
    """Return the names of the networks, sorted."""
    return tuple(sorted(NETWORKS))


def keras_file(name: str, kind: str = "float32", folder: Path | None = None) -> Path:
    """Return where :func:`keras_model` has the file, whether it is there or not.

    Raises:
        RankSliceError: there is no such network or kind.
    """
    for what, given, known in (("network", name, keras_names()), ("kind", kind, KINDS)):
        if given not in known:
            hint = nearest(given, known) or f"expected one of {', '.join(known)}"
            raise RankSliceError(Mistake("keras zoo", f"no {what} {given!r}", hint))
    return (folder or cache_folder()) / f"{name}-{kind}-k{RECIPE}.tflite"


def keras_model(name: str, kind: str = "float32", folder: Path | None = None) -> Path:
    """Return the file of a network, made now unless it is there already.

    The file appears complete or not at all. It depends on the version of TensorFlow.

    Args:
        name: one of :func:`keras_names`.
        kind: one of :data:`KINDS`.
        folder: where the file lies, made if needed; the cache folder unless given.

    Raises:
        RankSliceError: there is no such network or kind, or TensorFlow is not installed.
    """
    target = keras_file(name, kind, folder)
    if not target.exists():
        with draft_of(target) as draft:
            draft.write_bytes(_converted(_calibrated(name), kind, NETWORKS[name].size))
    return target


def keras_source(name: str, suffix: str = "keras", folder: Path | None = None) -> Path:
    """Return the file of a network as Keras stores it, made now unless it is there already.

    Args:
        name: one of :func:`keras_names`.
        suffix: one of :data:`SUFFIXES`.
        folder: where the file lies, made if needed; the cache folder unless given.

    Raises:
        RankSliceError: there is no such network, or TensorFlow is not installed.
    """
    target = keras_file(name, folder=folder).with_name(f"{name}-k{RECIPE}.{suffix}")
    if not target.exists():
        with draft_of(target) as draft, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras warns of its own older format
            _calibrated(name).save(draft)
    return target


def keras_frames(name: str, count: int) -> NDArray[np.float32]:
    """Return frames for a network, [count, height, width, 3], each different and of order one."""
    return np.concatenate(list(_frames(NETWORKS[name].size, count)))


@contextlib.contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """Yield a path for a file that becomes ``target`` when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        yield draft
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def imported_tensorflow() -> Any:
    """Return the module ``tensorflow``, told to be quiet and to leave GPUs alone.

    Raises:
        RankSliceError: it is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    try:
        import tensorflow
    except ImportError:
        raise RankSliceError(
            Mistake("keras zoo", "TensorFlow is not installed", "pip install tensorflow")
        ) from None
    return tensorflow


def drawn_network(name: str, frames: NDArray[np.float32], *, shift: float = 0.0) -> Any:
    """Return a Keras model with drawn weights, its normalisations with the statistics of frames.

    Args:
        name: one of :func:`keras_names`.
        frames: [count, height, width, 3].
        shift: what normalisations add, in standard deviations.

    Raises:
        RankSliceError: TensorFlow is not installed.
    """
    keras = imported_tensorflow().keras
    keras.backend.clear_session()
    keras.utils.set_random_seed(_SEED)
    model = getattr(keras.applications, NETWORKS[name].builder)(weights=None)
    normalisations = [
        layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)
    ]
    for layer in normalisations:
        # With no momentum, one pass in training mode leaves the statistics of its frames.
        layer.momentum = 0.0
        layer.beta.assign(np.full(layer.beta.shape, shift, np.float32))
    model(frames, training=True)
    return model


def _calibrated(name: str) -> Any:
    """Return the Keras model whose answers are neither certain nor the same for every frame."""
    keras = imported_tensorflow().keras
    frames = keras_frames(name, _FRAMES)
    model = drawn_network(name, frames)
    last = model.layers[-1]
    features = keras.Model(model.inputs, last.input)(frames, training=False).numpy()
    kernel, bias = last.get_weights()
    centred = features - features.mean(axis=1, keepdims=True)
    gain = _SPREAD / max(float(np.std(centred @ kernel)), 1e-6)
    last.set_weights([kernel * gain, bias - features.mean(axis=0) @ kernel * gain])
    return model


def _frames(size: int, count: int) -> Iterator[NDArray[np.float32]]:
    """Yield frames of squares of random colours of several sizes, of mean square one."""
    random = np.random.default_rng(_SEED)
    for index in range(count):
        frame = np.zeros((1, size, size, 3), np.float32)
        for cell in ((1,), (1, 4, 16, 56), (16, 56), (1, size))[index % 4]:
            side = -(-size // cell)
            coarse = random.standard_normal((1, side, side, 3), dtype=np.float32)
            frame += coarse.repeat(cell, axis=1).repeat(cell, axis=2)[:, :size, :size]
        yield frame / np.sqrt(np.mean(frame**2))


def _converted(model: Any, kind: str, size: int) -> bytes:
    tensorflow = imported_tensorflow()
    lite = tensorflow.lite
    converter = lite.TFLiteConverter.from_keras_model(model)
    if kind != "float32":
        converter.optimizations = [lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tensorflow.float16]
    if kind in ("int8", "int16x8"):
        converter.representative_dataset = _representative(size)
    if kind == "int8":
        converter.target_spec.supported_ops = [lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tensorflow.int8
    if kind == "int16x8":
        converter.target_spec.supported_ops = [
            lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        ]
    with contextlib.redirect_stdout(sys.stderr):  # Keras tells of the file that it exports
        converted: bytes = converter.convert()
    return converted


def _representative(size: int) -> Callable[[], Iterator[list[NDArray[np.float32]]]]:
    return lambda: ([frame] for frame in _frames(size, 2 * _FRAMES))
