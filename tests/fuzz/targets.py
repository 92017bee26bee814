"""The readers of files that people and other programs write, and good files to begin with.

A reader may do two things with any bytes: return, or raise an error that is meant for people.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from sample_model import SAMPLE_MODEL

from rankslice.backend.codegen import render_driver
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sizes import disagreement, make_slot
from rankslice.backend.runtime.sources import open_source
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.plan import plan_from_json, plan_to_json
from rankslice.framework.platform import Accelerator, Board, Platform
from rankslice.framework.reading.read_driver import read_driver
from rankslice.framework.specs.assign import assign
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.specs.read_mapping import read_mapping
from rankslice.framework.specs.read_platform import read_platform
from rankslice.frontend.formats.keras.file import check_keras_file
from rankslice.frontend.formats.keras.reader import read_keras
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.frontend.formats.onnx.writer import onnx_submodel
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.formats.tflite.writer import tflite_submodel
from rankslice.frontend.partition.partition import partition

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Target:
    """A reader, and how to call it with bytes."""

    file: str
    """What the file is called: endings decide how it is read."""
    read: Callable[[Path], object]
    seeds: tuple[bytes, ...]
    """Files that are read without an error."""
    words: tuple[bytes, ...]
    """What stands in such files, to be put in elsewhere."""


def meet(target: Target, folder: Path, content: bytes) -> None:
    """Let a reader meet some bytes; whatever it raises but errors for people is a bug."""
    path = folder / target.file
    path.write_bytes(content)
    with contextlib.suppress(RankSliceError, JobError):
        target.read(path)


def _read_model(path: Path) -> None:
    """Read a model, then cut it into two ranks' segments."""
    model = read_onnx(path)
    names = [layer.name for layer in model.graph.layers]
    found = partition(model.graph, {name: index % 2 for index, name in enumerate(names)})
    for part in found.segments:
        onnx_submodel(model, part, "x.onnx")


def _read_tflite(path: Path) -> None:
    """Read a model, then cut it into two ranks' segments."""
    model = read_tflite(path)
    layers = model.graph.layers
    found = partition(model.graph, {layer.name: n % 2 for n, layer in enumerate(layers)})
    for part in found.segments:
        tflite_submodel(model, part, "x.tflite")


def _read_keras(path: Path) -> None:
    """Read a model; where TensorFlow is missing, judge the file."""
    (read_keras if find_spec("tensorflow") else check_keras_file)(path)


GPU = Accelerator("litert")
PLATFORM = Platform(
    "platform.yaml",
    (
        Board("edge01", "edge01", cores=tuple(range(12)), gpus=(GPU,), npus=(GPU, GPU)),
        Board("a_b", "a_b", cores=(4, 7), gpus=(GPU,)),
    ),
)


def _read_mapping(path: Path) -> None:
    """Read a mapping, then find its boards and layers, whichever of them are wrong."""
    mapping = read_mapping(path)
    for understand in (
        lambda: place_ranks(mapping, PLATFORM),
        lambda: place_ranks(mapping, PLATFORM, share_cores=True),
        lambda: assign(mapping, _GRAPH),
    ):
        with contextlib.suppress(RankSliceError):
            understand()


def _read_platform(path: Path) -> None:
    """Read a platform, then place ranks on whatever boards it has."""
    platform = read_platform(path)
    keys = [f"{board.name}_{what}" for board in platform.boards for what in ("cpu0", "gpu", "npu1")]
    with contextlib.suppress(RankSliceError):
        place_ranks(Mapping("mapping.json", tuple(MappingEntry(key, ()) for key in keys)), platform)


def _read_plan(path: Path) -> None:
    """Read a plan, and the driver that is made of it."""
    plan = plan_from_json(read_text(path, "a plan"))
    assert plan == plan_from_json(plan_to_json(plan))
    driver = path.with_name("driver.py")
    driver.write_text(render_driver(plan))
    assert plan.job == read_driver(driver)


def _read_driver(path: Path) -> None:
    """Read a driver, and find what follows from its job."""
    for route in read_driver(path).routes:
        assert len(route.segments) == sum(len(rank.runs) for rank in route.ranks)
        assert len(route.channels) == sum(len(rank.sends) for rank in route.ranks)


def _read_results(path: Path) -> None:
    """Read a results file and touch all values of its first and its last frame."""
    results = read_results(path)
    ends = results.records[[0, -1]] if len(results) else results.records
    assert ends.tobytes() is not None
    assert len(results.completed_s) == len(results)
    for output, spec in enumerate(results.outputs):
        assert len(results.frames(output)[:2]) == min(2, len(results))
        assert len(results.shapes(output)) == len(results)
        if not spec.is_open:
            results.values(output)


_FRAMES = (
    Tensor("ids", "int64", (1, 8), ("", "seq")),
    Tensor("attention_mask", "float32", (1, 8), ("", "seq")),
)


def _read_frames(path: Path) -> None:
    """Read all frames of a file, as far as there are some hundreds."""
    source = open_source(RunOptions((str(path),)), _FRAMES)
    slots = [make_slot(spec) for spec in _FRAMES]
    for index in range(min(source.frames or 0, 300)):
        source.read(index, slots)
        assert not disagreement(slots)
    source.close()


def _npz() -> bytes:
    """Return a frame per array for one input, and a stack of frames for the other."""
    file = io.BytesIO()
    mask = np.ones((2, 1, 3), np.float32)
    np.savez(file, attention_mask=mask, **{f"ids/{n}": np.ones((1, 3), np.int64) for n in (0, 1)})
    return file.getvalue()


def _external() -> bytes:
    """Return a model whose weight lies in the model file itself, as if it were another one."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        " g (float[4] x) => (float[4] y) { [m] a = Mul(x, w) [n] y = Neg(a) }"
    )
    weight = onnx.TensorProto(name="w", data_type=1, dims=[4])
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "model.onnx", "offset": "4", "length": "16"}.items():
        weight.external_data.add(key=key, value=value)
    model.graph.initializer.append(weight)
    content: bytes = model.SerializeToString()
    return content


def _graph() -> Graph:
    """Return the graph that mappings are for."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(SAMPLE_MODEL.SerializeToString())
        return read_onnx(path).graph


_GRAPH = _graph()


def _results() -> bytes:
    head = {"job_sha256": "ab" * 32, "outputs": [["y", "float32", [1, 2]], ["z", "int4", [3]]]}
    record = struct.pack("<Qd2f2B", 0, 1.5, 1.0, 2.0, 3, 4)
    return b"rankslice results 2\n" + json.dumps(head).encode() + b"\n" + record * 3


def _open_results() -> bytes:
    boxes = ["boxes", "float16", [9, 4], ["?", ""]]
    head = {"job_sha256": "ab" * 32, "outputs": [boxes, ["z", "int8", [3]]]}
    frames = [
        struct.pack(f"<Qd2I{4 * rows}e3b", rows, 1.5, rows, 4, *[0.5] * 4 * rows, 1, 2, 3)
        for rows in (0, 3, 9)
    ]
    return b"rankslice results 2\n" + json.dumps(head).encode() + b"\n" + b"".join(frames)


_YAML = b"""boards:
  edge01:
    host: 192.168.1.11
    user: pi
    cores: 0-3
    memory_mb: 8192
    gpu: {engine: litert, delegate: libgpu.so, options: {precision: fp16}}
    npu: [{engine: litert}, {engine: onnxruntime, provider: CUDA}]
    idle_w: 2.5
  edge02: {cores: [1, 0]}
links:
  default: {bandwidth_mbps: 1000, latency_ms: 0.2}
  pairs:
    - {between: [edge01, edge02], bandwidth_mbps: 100, latency_ms: 0}
"""
_TEXT = b"""nx01
nx02:192.168.178.45
edge01 arm slots=0-5 NVIDIAVolta CUDA  # a comment
edge04, arm, slots=4, gpu=Mali (VULKAN)
"""
_MAPPINGS = (
    b'{"edge01_cpu0-3": ["a", "b..c"], "edge01_npu1@4": ["d"], "a_b_arm47": ["y"]}',
    b'{"edge01_cpu12": ["a..e"], "edge01_gpu.2": ["\\u00e9"], "edge01_x860": ["\\u202e", "x"]}',
)
_PUNCTUATION = tuple(bytes([letter]) for letter in b"{}[]:,-&*!|>\"'#%@ \n\t.~<=\\")
_NUMBERS = (b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"9" * 30, b"0.5", b"1" * 5000, b"\x00")
_WORDS = (*_PUNCTUATION, *_NUMBERS, b"null", b"true", b"\xef\xbb\xbf", b"\xff", "\u202e".encode())

_TFLITE = tuple(
    (ROOT / "tests" / "models" / "tflite" / f"{name}.tflite").read_bytes()
    for name in ("many_outputs", "control_flow", "cnn_int8", "ethos_u")
)
_TFLITE_WORDS = (
    *(number.to_bytes(4, "little") for number in (0, 1, 4, 0x7FFFFFFF, 0xFFFFFFFC, 0xFFFFFFFF)),
    *(b"TFL2", b"\x06\x00", b"\xff\xff"),
)
_HDF5_WORDS = (
    *(b"TREE", b"SNOD", b"HEAP", b"OHDR", b"OCHK", b"FRHP", b"\x89HDF", b"PK\x03\x04"),
    *(bytes(8), b"\xff" * 8, b"\x00\x00\x01\x00", b"\x7f" * 4, b'"class_name": "Lambda"'),
)

TARGETS = {
    "model": Target(
        "model.onnx",
        _read_model,
        (
            SAMPLE_MODEL.SerializeToString(),
            _external(),
            (ROOT / "models" / "digits.onnx").read_bytes(),
        ),
        (b"\x08", b"\x3a\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x0a\x00", b"\x2a", b"../x", b"y"),
    ),
    "tflite": Target("model.tflite", _read_tflite, _TFLITE, _TFLITE_WORDS),
    "mapping": Target(
        "mapping.json",
        _read_mapping,
        _MAPPINGS,
        (*_WORDS, b"edge01_cpu", b"@4", b".2", b"..", b"[" * 3000),
    ),
    "platform": Target(
        "platform.yaml",
        _read_platform,
        (_YAML,),
        (*_WORDS, b"boards:", b"&a ", b"*a", b"<<: ", b"!!python/name:os.system ", b"- " * 2000),
    ),
    "platform-text": Target(
        "platform.txt", _read_platform, (_TEXT,), (*_WORDS, b"slots=", b"gpu=", b"0-", b";")
    ),
    "plan": Target(
        "plan.json",
        _read_plan,
        ((ROOT / "tests" / "golden" / "figure2" / "plan.json").read_bytes(),),
        (*_WORDS, b'"rank"', b'"shape": [9999999999]', b'"float32"', b"[" * 3000),
    ),
    "driver": Target(
        "driver.py",
        _read_driver,
        tuple(
            (ROOT / "tests" / "golden" / name / "driver.py").read_bytes()
            for name in ("figure2", "surge")
        ),
        (*_WORDS, b"Send(", b"source=", b"to=-1", b"(" * 300, b"**{}", b"__import__('os')", b"-"),
    ),
    "results": Target(
        "results.bin",
        _read_results,
        (_results(), _open_results()),
        (
            *_WORDS,
            b"[" * 3000,
            b'"object"',
            b'"float32"',
            b"[99999999999, 99999999999]",
            b'["?", ""]',
            b"\xff\xff\xff\xff",
            b'"V1000000000"',
        ),
    ),
}

_HEADS = (b"(1, 3)", b"(9999999999,)", b"<i8", b"|O", b"PK\x01\x02", b"\xff" * 4, b"ids/7.npy")
for _suffix, _seeds, _own in (
    ("npz", (_npz(),), _HEADS),
    ("txt", (b"101 7 102\n5\n",), (*_WORDS, b"9" * 20)),
    (
        "jsonl",
        (b'{"ids": [1, 2], "attention_mask": [[1, 0.5]]}\n{"ids": [[]], "attention_mask": []}',),
        (*_WORDS, b"[" * 3000, b'"ids"', b"[]", b'""'),
    ),
):
    TARGETS[f"frames-{_suffix}"] = Target(f"frames.{_suffix}", _read_frames, _seeds, _own)


KERAS_TARGETS = {
    suffix: Target(
        f"model.{suffix}",
        _read_keras,
        ((ROOT / "models" / f"digits.{suffix}").read_bytes(),),
        _HDF5_WORDS,
    )
    for suffix in ("keras", "h5")
}
"""Those that need h5py, which comes with TensorFlow."""


def edited(seed: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Return a seed with pieces replaced: (where, how many bytes, by what), one after the other."""
    content = bytearray(seed)
    for start, length, piece in edits:
        at = start % (len(content) + 1)
        content[at : at + length] = piece
    return bytes(content)


def pieces(target: Target) -> list[bytes]:
    """Return what is put into seeds: words, and runs of the seeds themselves."""
    runs = [
        seed[start : start + 40]
        for seed in target.seeds
        for start in itertools.islice(range(0, len(seed), 20), 50)
    ]
    return [b"", *target.words, *runs]
