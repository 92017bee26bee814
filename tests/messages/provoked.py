"""Mistakes of all kinds: what lies in the folder, and the command that meets it."""

from __future__ import annotations

import io
import itertools
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from jobs import figure_2
from onnx import helper
from tflite_models import model_file

Content = str | bytes | Callable[[Path], object]
"""What a file holds, or what makes it at the path it is given."""

BUILD = "build model.onnx --mapping mapping.json --platform platform.yaml --out new"

LAYERS = ["MaxPool1", "Conv1", "FC1", "Add1", "Relu1"]
MAPPING = """{
  "edge01_cpu1-3": ["MaxPool1", "Add1"],
  "edge01_cpu0": ["FC1"],
  "pi-4_b_arm45": ["convolved", "y"]
}"""
PLATFORM = "boards: {edge01: {cores: 0-5}, pi-4_b: {cores: 6}}"

LFS_POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 16\n"
HTML_PAGE = "\n<!DOCTYPE html>\n<html><body>Sign in to see this file</body></html>\n"


@dataclass(frozen=True)
class Provoked:
    """A mistake and what provokes it."""

    title: str
    command: str
    files: Mapping[str, Content] = field(default_factory=dict)
    """Beside or in place of the good ones."""


def mistakes() -> dict[str, list[Provoked]]:
    """Return the catalogue by section."""
    return {
        "Mapping files that are no mappings": list(_unreadable_mappings()),
        "Mapping keys": list(_keys()),
        "Layers in mappings": list(_layers()),
        "Layers that are split": list(_splits()),
        "AutoDiCE's files of splits": list(_horizontal()),
        "Types between boards": list(_wires()),
        "Platform files": list(_platforms()),
        "AutoDiCE's platform files": list(_platform_texts()),
        "Model files that are no models": list(_no_models()),
        "Models of several files": list(_parts_files()),
        "Models that cannot be sliced": list(_models()),
        "Weights outside of the model file": list(_external_data()),
        "Where the build folder goes": list(_targets()),
        "Options of build": list(_options()),
        "Build folders that cannot be run": list(_folders()),
        "Options and inputs of run": list(_runs()),
        "Folders to report on": list(_reports()),
        "Options and inputs of replay": list(_replays()),
        "Two routes": list(_routes()),
        "Options of trace": list(_traces()),
        "Options and inputs of inspect": list(_inspections()),
        "Options and inputs of simulate": list(_simulations()),
        "Options and files of bench": list(_benchmarks()),
        "Options and inputs of profile": list(_profiles()),
        "Options and inputs of explore": list(_explorations()),
        "Boards and options of probe": list(_probes()),
    }


def _link(target: str) -> Callable[[Path], None]:
    """Return what makes a link; ``itself`` leads to itself."""

    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(path.name if target == "itself" else target)

    return make


def _mapping(title: str, content: Content) -> Provoked:
    return Provoked(title, BUILD, {"mapping.json": content})


def _platform(title: str, content: Content) -> Provoked:
    return Provoked(title, BUILD, {"platform.yaml": content})


def _model(title: str, content: Content) -> Provoked:
    return Provoked(title, BUILD.replace("model.onnx", "bad.onnx"), {"bad.onnx": content})


def _unreadable_mappings() -> Iterator[Provoked]:
    yield Provoked("no such file", BUILD.replace("mapping.json", "maping.json"))
    yield Provoked("a folder", BUILD.replace("mapping.json", "folder"))
    yield Provoked("a pipe", BUILD.replace("mapping.json", "pipe"), {"pipe": os.mkfifo})
    yield Provoked("a device without end", BUILD.replace("mapping.json", "/dev/zero"))
    yield _mapping("more than anybody writes", lambda path: os.truncate(path, (16 << 20) + 1))
    yield _mapping("a link to itself", _link("itself"))
    yield _mapping("an empty file", "")
    yield _mapping("white space alone", " \n\n")
    yield _mapping("text", "conv1 goes to edge01\n")
    yield _mapping("YAML", "edge01_cpu0: [MaxPool1]\n")
    yield _mapping("UTF-16", MAPPING.encode("utf-16"))
    yield _mapping("bytes that are no UTF-8", b'{"edge01_cpu0": ["MaxPool\xff"]}')
    yield _mapping("half a character", '{"edge01_cpu0": ["é"]}'.encode()[:20])
    yield _mapping("a byte order mark, which is skipped", "\ufeff{}")
    yield _mapping("a missing comma", '{"edge01_cpu0": ["MaxPool1"]\n "edge01_cpu1": ["FC1"]}')
    yield _mapping("a comma too much", '{"edge01_cpu0": ["MaxPool1",]}')
    yield _mapping("single quotes", "{'edge01_cpu0': ['MaxPool1']}")
    yield _mapping("a string without end", '{"edge01_cpu0": ["MaxPool1')
    yield _mapping("a line break in a string", '{"edge01_cpu0": ["Max\nPool1"]}')
    yield _mapping("two objects", "{} {}")
    yield _mapping("an empty object", "{}")
    yield _mapping("a list", '[{"edge01_cpu0": ["MaxPool1"]}]')
    yield _mapping("a string", '"local"')
    yield _mapping("nothing", "null")
    yield _mapping("a number", "3")
    yield _mapping("not a number", '{"edge01_cpu0": NaN}')
    yield _mapping("infinity", '{"edge01_cpu0": [-Infinity]}')
    yield _mapping("a huge number", '{"edge01_cpu0": ' + "9" * 5000 + "}")
    yield _mapping("a large number", '{"edge01_cpu0": [1e999]}')
    yield _mapping("deep nesting", '{"edge01_cpu0": ' + "[" * 100_000)
    yield _mapping("a key twice", '{"edge01_cpu0": ["MaxPool1"], "edge01_cpu0": ["FC1"]}')
    yield _mapping(
        "parts that are none",
        '{"edge01_cpu0": [{"layers": ["Conv1"], "by": "row"}, {"layer": ["Conv1"], "by": "rows"}],'
        ' "edge01_cpu1": [{"layers": [], "by": "rows", "share": -1, "halo": true}]}',
    )
    yield _mapping("very many mistakes", f'{{"edge01_cpu0": {[*range(5000)]}}}')
    yield _mapping(
        "values that are no lists of names",
        '{"edge01_cpu0": "MaxPool1", "edge01_cpu1": [7, null, ["FC1"]], "edge01_cpu2": {"a": 1}}',
    )


def _keys() -> Iterator[Provoked]:
    hostile = ["edge01/../cpu0", "edge01_cpu0\n", "edge01_cpu0\0", "'; rm -rf ~", "\u202e_cpu0"]
    for title, keys in {
        "no board": ["_cpu0"],
        "nothing after the board": ["edge01_"],
        "no name at all": [""],
        "an unknown resource": ["edge01_tpu0"],
        "a resource in other letters": ["edge01_GPU"],
        "a CPU without cores": ["edge01_cpu"],
        "cores that are no numbers": [
            "edge01_cpux",
            "edge01_cpu0-",
            "edge01_cpu0,,1",
            "edge01_cpu0;1",
        ],
        "cores that run backwards": ["edge01_cpu3-1"],
        "one core twice": ["edge01_cpu1,1"],
        "one digit twice": ["edge01_cpu11"],
        "huge numbers of cores": ["edge01_cpu0-8192", "edge01_cpu99999999999999999999"],
        "a core beyond the board's": ["edge01_cpu6", "edge01_cpu10-12", "pi-4_b_arm4-7"],
        "one core in two keys": ["edge01_cpu0-3", "edge01_cpu2,3,4"],
        "one core in three keys, as two resources": ["edge01_cpu1", "edge01_arm1", "edge01_x861-1"],
        "a suffix without --share-cores": ["edge01_cpu0", "edge01_cpu0.2"],
        "a suffix that counts nothing": ["edge01_cpu0.1", "edge01_cpu1.x", "edge01_cpu2."],
        "a host core on a CPU": ["edge01_cpu0@1"],
        "host cores that are none": [
            "edge01_gpu@x",
            "edge01_gpu@4,5",
            "edge01_gpu@9999",
            "edge01_gpu@",
        ],
        "numbers of accelerators that are none": ["edge01_gpux", "edge01_npu-1"],
        "a GPU and an NPU that the board lacks": ["edge01_gpu", "pi-4_b_npu3"],
        "an unknown board, nearly right": ["egde01_cpu0", "egde01_cpu1"],
        "an unknown board": ["jetson_cpu0"],
        "a board in other letters": ["EDGE01_cpu0"],
        "names that want to break something": hostile,
        "a name of 10,000 characters": ["x" * 10_000 + "_cpu0", "edge01_" + "y" * 10_000],
    }.items():
        parts = np.array_split(LAYERS, len(keys))
        mapping = {key: part.tolist() for key, part in zip(keys, parts, strict=True)}
        yield _mapping(title, json.dumps(mapping))
    for title, key in {
        "weights that are none": "edge01_cpu0*0|edge01_cpu1*x|pi-4_b_arm45*",
        "weights without a small common measure": "edge01_cpu0*999999|edge01_cpu1*5",
        "a key too much among those of ranks in turn": "edge01_cpu0||edge01_cpu1",
        "two mistakes among the keys of ranks in turn": "edge01_tpu*2|edge01_cpu0|jetson",
        "a rank that takes turns with itself": "edge01_cpu0*2|edge01_cpu0",
        "one core in two ranks in turn": "edge01_cpu0-1|edge01_cpu1-2",
    }.items():
        yield _mapping(title, json.dumps({key: LAYERS}))
    yield _mapping(
        "a rank in turn that is a rank of its own, too",
        json.dumps({"edge01_cpu0|edge01_cpu1": LAYERS[:2], "edge01_cpu1": LAYERS[2:]}),
    )
    units = "gpu: {engine: litert}, npu: [{engine: litert}, {engine: litert}]"
    for title, keys in {
        "accelerators and a host core that boards lack": [
            "edge01_gpu@9",
            "edge01_gpu1",
            "edge01_npu2",
            "edge_02_npu",
        ],
        "one accelerator in two keys, and its host core": [
            "edge01_cpu2-4",
            "edge01_gpu@4",
            "edge01_gpu0",
            "edge01_npu.2",
        ],
    }.items():
        platform = f"boards: {{edge01: {{cores: 6, {units}}}, edge_02: {{cores: 2}}}}"
        layers = [["MaxPool1"], ["Conv1"], ["FC1"], ["Add1", "Relu1"]]
        mapping = json.dumps(dict(zip(keys, layers, strict=True)))
        yield Provoked(title, BUILD, {"mapping.json": mapping, "platform.yaml": platform})
    sixteen = "boards: {pc: {cores: 16}}"
    yield Provoked(
        "a core of two digits that may be two cores",
        BUILD,
        {"mapping.json": '{"pc_cpu12": ["MaxPool1..Relu1"]}', "platform.yaml": sixteen},
    )
    yield Provoked(
        "boards whose engines are missing here",
        BUILD,
        {
            "mapping.json": '{"nano_gpu": ["MaxPool1..Conv1"], "nano_cpu1": ["FC1..Relu1"]}',
            "platform.yaml": "boards: {nano: {engine: tensorrt, gpu: {engine: litert}, cores: 4}}",
        },
    )


def _layers() -> Iterator[Provoked]:
    def layers(title: str, **names: list[str]) -> Provoked:
        keys = ("edge01_cpu0", "edge01_cpu1", "pi-4_b_cpu0")
        return _mapping(title, json.dumps(dict(zip(keys, names.values(), strict=False))))

    yield layers("a layer too few", a=["MaxPool1", "Add1", "FC1"], b=["Relu1"])
    yield layers("layers too few", a=["MaxPool1"])
    yield layers("unknown layers", a=["MaxPool1..Add1", "Relu2"], b=["relu1"])
    yield layers("a name in other letters", a=["MAXPOOL1", "Conv1..Relu1"])
    yield layers("a layer in two keys", a=["MaxPool1..Relu1"], b=["FC1"])
    yield layers("layers in two keys", a=["MaxPool1..Add1"], b=["Conv1..Relu1"])
    yield layers("an empty rank", a=["MaxPool1..Relu1"], b=[])
    yield layers("an empty name", a=["MaxPool1..Relu1", ""])
    yield layers("a range without ends", a=["MaxPool1..", "..Relu1", ".."])
    yield layers("a range that runs backwards", a=["Relu1..MaxPool1"])
    yield layers("the model's input", a=["x", "MaxPool1..Relu1"])
    yield layers(
        "names that want to break something",
        a=["../MaxPool1", "Conv1\n", "\0", "'\"", "\u202eConv1", "x" * 10_000],
        b=["MaxPool1..Relu1"],
    )
    yield layers("a mapping for another model", a=[f"conv{n}" for n in range(30)])


def _splits() -> Iterator[Provoked]:
    rows: dict[str, Any] = {"layers": ["Conv1"], "by": "rows"}
    rest = ["MaxPool1", "FC1", "Add1", "Relu1"]

    def parts(title: str, one: list[object], other: list[object]) -> Provoked:
        return _mapping(title, json.dumps({"edge01_cpu0": one, "edge01_cpu1": other}))

    yield parts("a part alone", [rows, *rest[1:]], rest[:1])
    yield parts("two parts in one key", [rows, rows, *rest], [rows])
    yield parts("parts in different ways", [rows, *rest], [{**rows, "halo": "exchange"}])
    yield parts(
        "a layer in two blocks", [{**rows, "layers": ["MaxPool1..Conv1"]}, *rest[1:]], [rows]
    )
    yield parts("a layer as a whole, too", [rows, *rest], [rows, "Conv1"])
    yield parts("unknown layers", [{**rows, "layers": ["Cnov1"]}, *rest], [rows])
    for title, part in {
        "a way that nobody knows": {**rows, "by": "row"},
        "shares that are none": {**rows, "share": 0},
        "a share that is too large": {**rows, "share": 1.7e308},
        "a halo of parts that have none": {**rows, "by": "outputs", "halo": "exchange"},
        "heads without attention": {**rows, "by": "heads"},
    }.items():
        yield parts(title, [part, *rest], [part])
    six = {f"edge01_cpu{core}": [rows] for core in range(6)}
    six["edge01_cpu0"] = [rows, *rest]
    yield _mapping("more parts than rows", json.dumps(six))
    open_sizes = """<ir_version: 8, opset_import: ["" : 17]>
        open (float[1,4,h,8] x) => (float[1,4,h,8] y) { [a] t = Relu(x) [b] y = Neg(t) }"""
    split = {**rows, "layers": ["b"]}
    yield Provoked(
        "open sizes",
        f"{BUILD} --at-most x=1,4,8,8",
        {
            "model.onnx": lambda path: onnx.save(onnx.parser.parse_model(open_sizes), path),
            "mapping.json": json.dumps({"edge01_cpu0": ["a", split], "edge01_cpu1": [split]}),
        },
    )
    for title, own, surge in (
        ("a second route of layers that are split", ["Conv1"], [rows]),
        ("layers that are split, and a second route", [rows], ["Conv1"]),
    ):
        files = {
            name: json.dumps({"edge01_cpu0": [*items, *rest], "edge01_cpu1": [*items]})
            for name, items in {"mapping.json": own, "surge.json": surge}.items()
        }
        whole = json.dumps({"edge01_cpu0": ["MaxPool1..Relu1"]})
        files = {n: whole if "by" not in text else text for n, text in files.items()}
        yield Provoked(title, f"{BUILD} --surge surge.json", files)


def _horizontal() -> Iterator[Provoked]:
    keys = ["edge01_cpu0", "edge01_cpu1"]
    mapping = {keys[0]: LAYERS, keys[1]: ["Conv1"]}
    command = f"{BUILD} --horizontal splits.json"

    def splits(title: str, value: object, mapping: object = mapping) -> Provoked:
        text = value if isinstance(value, str) else json.dumps(value)
        files = {"mapping.json": json.dumps(mapping), "splits.json": text}
        return Provoked(title, command, files)

    yield Provoked("no such file", command, {"mapping.json": json.dumps(mapping)})
    yield splits("half a file", '{"Conv1": ["lop", [2')
    yield splits("nothing", {})
    yield splits("values that are none", {"Conv1": ["lopp", [2.5, 0], "edge01_cpu0"], "FC1": 3})
    yield splits("sizes and keys that do not match", {"Conv1": ["lop", [1, 2, 4], keys]})
    yield splits("ends that run backwards", {"Conv1": ["lop", [4, 2], keys]})
    yield splits("an unknown layer", {"Cnov1": ["lop", [2, 4], keys]})
    yield splits("an unknown key", {"Conv1": ["lop", [2, 4], [keys[0], "edge01_cpu3"]]})
    yield splits("a key twice", {"Conv1": ["lop", [2, 4], [keys[0]] * 2]})
    yield splits("nothing left for the last part", {"Conv1": ["lop", [4, 65535], keys]})
    yield splits("sizes that are too small", {"Conv1": ["height", [1, 1], keys]})
    elsewhere = {**mapping, keys[1]: ["pooled"], "edge01_cpu2": ["Conv1"]}
    elsewhere[keys[0]] = ["FC1", "Add1", "Relu1"]
    yield splits("a layer in a third key", {"Conv1": ["lop", [2, 4], keys]}, elsewhere)
    part = {"layers": ["Conv1"], "by": "rows"}
    both = {keys[0]: ["MaxPool1", "FC1", "Add1", "Relu1", part], keys[1]: [part]}
    yield splits("a layer that the mapping splits, too", {"Conv1": ["lop", [2, 4], keys]}, both)


def _wires() -> Iterator[Provoked]:
    frame = np.random.default_rng(0).random((1, 4, 8, 8), np.float32)
    files: dict[str, Content] = {
        "mapping.json": '{"a_cpu0": ["MaxPool1"], "b_cpu0": ["Conv1..Relu1"]}',
        "platform.yaml": "boards: {a: {cores: 1}, b: {cores: 1}}",
    }

    def frames(title: str, wire: str, values: np.ndarray[Any, Any]) -> Provoked:
        command = f"{BUILD} --wire {wire} --representative frames.npy"
        return Provoked(title, command, {**files, "frames.npy": lambda path: np.save(path, values)})

    yield Provoked("an unknown type", f"{BUILD} --wire float8", files)
    link = "{bandwidth_mbps: 100, latency_ms: 1, wire: float8}"
    platform = f"{files['platform.yaml']}\nlinks: {{default: {link}}}"
    yield Provoked("an unknown type of a link", BUILD, {**files, "platform.yaml": platform})
    platform = platform.replace("float8", "int8")
    yield Provoked("int8 without frames", BUILD, {**files, "platform.yaml": platform})
    yield Provoked("a second route", f"{BUILD} --wire float16 --surge mapping.json", files)
    yield frames("frames of another shape", "int8", frame[:, :2])
    yield frames("frames of another type", "int8", frame.astype(np.float64))
    yield frames("no frames", "float16", frame[:0])
    yield frames("frames that are no numbers", "int8", np.where(frame > 2, frame, np.nan))
    yield frames("infinite frames", "int8", np.where(frame > 0.5, frame, np.inf))
    yield frames("frames beyond float16", "float16", frame * np.float32(1e6))

    def older(path: Path) -> None:
        model = figure_2()
        model.opset_import[0].version = 12
        onnx.save(model, path)

    title = "operators that are too old for bfloat16"
    yield Provoked(title, f"{BUILD} --wire bfloat16", {**files, "model.onnx": older})


def _platforms() -> Iterator[Provoked]:
    yield Provoked("no such file", BUILD.replace("platform.yaml", "nothing.yaml"))
    yield Provoked("a folder", BUILD.replace("platform.yaml", "folder"))
    yield Provoked("a device without end", BUILD.replace("platform.yaml", "/dev/zero"))
    yield _platform("more than anybody writes", "#" * ((1 << 18) + 1))
    yield _platform("an empty file", "")
    yield _platform("UTF-16", PLATFORM.encode("utf-16"))
    yield _platform("bytes that are no UTF-8", b"boards: {\xff: {}}")
    yield _platform("a control character", "boards: {a\x07: {}}")
    yield _platform("broken YAML", "boards: {edge01: [}")
    yield _platform("a tab at the beginning of a line", "boards:\n\tedge01: {}")
    yield _platform("two documents", "boards: {a: {}}\n---\nboards: {b: {}}")
    yield _platform("a list", "- edge01\n- edge02\n")
    yield _platform("no boards", "links: {}")
    yield _platform("boards without a name", "boards: {}")
    yield _platform("boards in a list", "boards: [a]")
    yield _platform("a key twice", "boards:\n  edge01: {}\n  edge01: {}\n")
    yield _platform("a key that is a list", "boards: {[a, b]: {}}")
    laughs = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    yield _platform("aliases that unfold", "a0: &a0 [lol]\n" + laughs)
    yield _platform("an alias to itself", "boards: &b {edge01: *b}")
    yield _platform("a merge key", "boards: {edge01: {<<: {cores: 4}}}")
    yield _platform("deep nesting", "[" * 1_000)
    yield _platform("deep nesting by indentation", "".join(f"{' ' * n}a:\n" for n in range(500)))
    yield _platform("code", "boards: {edge01: !!python/object/apply:os.system ['touch made']}")
    yield _platform("unknown keys", "boards: {edge01: {coers: 4, slots: 2, Host: a}}\nlink: {}")
    yield _platform("boards that are none", "boards: {edge01: 4, edge02: [cores], edge03: text}")
    yield _platform(
        "cores that are none",
        "boards: {a: {cores: many}, b: {cores: -1}, c: {cores: 0}, d: {cores: 3-1}, "
        "e: {cores: 1.5}, f: {cores: [0, 0]}, g: {cores: []}, h: {cores: {}}, i: {cores: 1e9}, "
        "j: {cores: 99999999999999999999}, k: {cores: '0-3,'}}",
    )
    yield _platform(
        "numbers that are none",
        "boards: {a: {memory_mb: lots, idle_w: -1, busy_w: .nan}, b: {memory_mb: .inf, "
        "idle_w: 1e999, busy_w: []}, c: {memory_mb: 0}}",
    )
    yield _platform(
        "names that want to break something",
        'boards: {../edge01: {}, "a b": {}, "x\\ny": {}, "\\u202eb": {}, "": {}, -oProxy: {}, '
        "'; rm -rf ~': {}, " + "b" * 100 + ": {}}",
    )
    yield _platform("a name of 10,000 characters", f"boards:\n  ? {'b' * 10_000}\n  : {{}}\n")
    yield _platform(
        "hosts and accounts that want to break something",
        'boards: {a: {host: -oProxyCommand=id}, b: {host: "1.2.3.4 slots=9"}, c: {user: -root}, '
        'd: {host: "a\\nb", user: "$(id)"}, e: {host: '
        + "h" * 10_000
        + "}, f: {user: a/b}, g: {host: [a]}}",
    )
    yield _platform(
        "accelerators that are none",
        "boards: {a: {gpu: litert, npu: [{}]}, b: {gpu: {engine: ../x, power: 3}, "
        "npu: {engine: litert, options: [a]}}}",
    )
    yield _platform(
        "what accelerators cannot have",
        """
boards:
  edge01:
    gpu:
      engine: onnxruntime
      delegate: x.so
      environment: {LD_PRELOAD: x.so, A-B: 1, C: [1]}
      allow_fallback: perhaps
    npu:
      - {engine: litert, provider: CUDA, options: {provider: CUDA}}
      - {engine: litert, options: {delegate: y, a: [1]}}
      - {engine: onnxruntime, plugin: onnxruntime-qnn}
      - {engine: onnxruntime, provider: QNN, plugin: "--index-url x", options: {plugin: a}}
      - {engine: litert, options: {delegate: y}}
""",
    )
    yield _platform(
        "links that are none",
        "boards: {a: {}, b: {}}\nlinks: {default: {bandwidth_mbps: 0, latency_ms: -1, "
        "bandwith_mbps: 3}, pairs: ["
        "{between: [a, c], bandwidth_mbps: 1, latency_ms: 1}, "
        "{between: [a, a], bandwidth_mbps: 1, latency_ms: 1}, "
        "{between: [a], bandwidth_mbps: 1, latency_ms: 1}, {between: [a, b], bandwidth_mbps: 1}, "
        "{between: [b, a], bandwidth_mbps: 1, latency_ms: 1, compress: gzip}]}",
    )


def _platform_texts() -> Iterator[Provoked]:
    lenovo = '{"lenovo_cpu0": ["MaxPool1..FC1"], "lenovo_cpu1": ["Add1", "Relu1"]}'
    command = BUILD.replace("platform.yaml", "platform.txt")
    yield Provoked(
        "the example that comes with AutoDiCE: its mapping's board is not in its platform",
        command,
        {"mapping.json": lenovo, "platform.txt": "nx01\nnx02\nnx03\nnx04\n"},
    )
    for title, text in {
        "an empty file": "",
        "comments alone": "# nx01\n",
        "a board twice": "edge01\nedge01 arm slots=4\n",
        "lines that are no boards": "edge 01 : 3 4 5\n-nx01\nnx02 arm slots=x\nnx03:a b c d e\n"
        "nx04:-oProxy\nnx05 slots=5-0\n",
        "YAML": PLATFORM,
    }.items():
        yield Provoked(title, command, {"platform.txt": text})


PARTS = """\
parts:
  first: {onnx: model.onnx, inputs: {x: image}}
  second: {onnx: model.onnx, inputs: {x: first/y}}
outputs: {result: second/y}
"""
"""The second part reads an image that is smaller than that which the first one reads."""


def _parts_files() -> Iterator[Provoked]:
    """Yield mistakes in parts files: what was there, and what is there instead."""
    command = BUILD.replace("model.onnx", "parts.yaml")
    for title, changes in {
        "a list": {PARTS: "[]"},
        "deep nesting": {PARTS: "[" * 1_000},
        "an alias": {"{onnx: model.onnx, inputs: {x: first/y}}": "*first"},
        "a part twice": {"second:": "first:"},
        "no outputs": {"outputs: {result: second/y}": ""},
        "an output that is an input": {"second/y}": "image}"},
        "a part without a file": {"onnx: model.onnx, ": ""},
        "a file in another folder": {"onnx: model.onnx": "onnx: ../model.onnx"},
        "a file that is not there": {"onnx: model.onnx": "onnx: modle.onnx"},
        "an unknown key": {"onnx:": "onxx:"},
        "an evil name": {"second:": '"a\\nb":'},
        "an unknown part": {"first/y": "frist/y"},
        "an unknown output": {"first/y": "first/z"},
        "parts in a cycle": {"x: image": "x: second/y"},
        "an unknown layout": {"{x: first/y}": "{x: first/y}, layouts: {x: nwhc}"},
        "a joint of other sizes": {},
    }.items():
        text = PARTS
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        yield Provoked(title, command, {"parts.yaml": text})


def _no_models() -> Iterator[Provoked]:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde"
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.txt"), "text")
    whole = figure_2().SerializeToString()
    yield Provoked("no such file", BUILD.replace("model.onnx", "modle.onnx"))
    yield _model("a folder", lambda path: path.mkdir())
    yield _model("a pipe", os.mkfifo)
    yield _model("a device without end", _link("/dev/zero"))
    yield _model("a link to itself", _link("itself"))
    yield _model("an empty file", b"")
    yield _model("a picture", png)
    yield _model("an archive", zipped.getvalue())
    yield _model("text", "this is no model\n")
    yield _model("a file that ends early", whole[: len(whole) // 2])
    yield _model("a file that ends late", whole + b"\xff")
    yield _model(
        "another kind of protobuf", helper.make_tensor("x", 1, [1], [1]).SerializeToString()
    )
    yield Provoked(
        "a model in another format",
        BUILD.replace("model.onnx", "model.pb"),
        {"model.pb": b"\x1c\0\0\0"},
    )
    yield Provoked(
        "a .tflite model that was cut off",
        BUILD.replace("model.onnx", "model.tflite"),
        {"model.tflite": b"\x1c\0\0\0TFL3"},
    )
    for suffix in ("onnx", "tflite", "keras"):
        name = f"bad.{suffix}"
        command = BUILD.replace("model.onnx", name)
        yield Provoked(f"a pointer of Git LFS as .{suffix} file", command, {name: LFS_POINTER})
        yield Provoked(f"an HTML page as .{suffix} file", command, {name: HTML_PAGE})
    for suffix in ("tflite", "keras"):
        command = BUILD.replace("model.onnx", f"model.{suffix}")
        yield Provoked(f"no such .{suffix} file", command)
        yield Provoked(f"a .{suffix} pipe", command, {f"model.{suffix}": os.mkfifo})
    yield Provoked("a long name", BUILD.replace("model.onnx", f"{'m' * 10_000}.onnx"))
    yield Provoked("an evil name", BUILD.replace("model.onnx", "$'a\\n\\u202eb.onnx'"))


def _models() -> Iterator[Provoked]:
    head = '<ir_version: 8, opset_import: ["" : 17]>'

    def text(title: str, body: str) -> Provoked:
        return _model(title, onnx.parser.parse_model(f"{head}\n{body}").SerializeToString())

    def sliced(title: str, body: str, mapping: str, options: str = "") -> Provoked:
        model = onnx.parser.parse_model(f"{head} {body}").SerializeToString()
        command = BUILD.replace("model.onnx", "bad.onnx") + options
        return Provoked(title, command, {"bad.onnx": model, "mapping.json": mapping})

    def of_tflite(title: str, model: str, layers: str, options: str) -> Provoked:
        command = BUILD.replace("model.onnx", "bad.tflite") + options
        mapping = json.dumps({"edge01_cpu0": [layers]})
        content = model_file(model).read_bytes()
        return Provoked(title, command, {"bad.tflite": content, "mapping.json": mapping})

    yield text(
        "layers that wait for each other",
        "g (float[1] x) => (float[1] y) { [p] a = Add(x, c) [q] b = Neg(a) [r] c = Abs(b)"
        " [s] y = Neg(x) }",
    )
    yield text("a layer that waits for itself", "g (float[1] x) => (float[1] y) { y = Add(x, y) }")
    yield text("sizes that are open", "g (float[N, 3, H] x) => (float[N] y) { y = Neg(x) }")
    yield text("no layers", "g (float[1] x) => (float[1] x) { }")
    yield text("a tensor that nothing makes", "g (float[1] x) => (float[1] y) { y = Add(x, z) }")
    yield text("an output that nothing makes", "g (float[1] x) => (float[1] z) { y = Neg(x) }")
    yield text("a tensor made twice", "g (float[1] x) => (float[1] y) { y = Neg(x) y = Abs(x) }")
    long = "t" * 10_000
    yield _model(
        "names that want to break something",
        _chain(["x", "a\n", "\u202e../b", "'\"\0", "y"], missing=["no\nthing", long]),
    )
    old = figure_2()
    old.ir_version = 2
    yield _model("a model of an old version", old.SerializeToString())
    unversioned = figure_2()
    del unversioned.opset_import[:]
    yield _model("a model without operator sets", unversioned.SerializeToString())
    yield sliced(
        "a size without a bound, between two ranks",
        "g (float[4] x) => (float[4] y) { [n] i = Cast<to = 7>(x) [s] f = Expand(x, i)"
        " [r] m = ReduceSum<keepdims = 0>(f) [a] y = Add(x, m) }",
        '{"edge01_cpu0": ["n", "s"], "edge01_cpu1": ["r", "a"]}',
    )
    yield sliced(
        "sizes without bounds, between two ranks that take turns",
        "g (float[4] x) => (float[4] y) { [n] i = Cast<to = 7>(x) [s] f = Expand(x, i)"
        " [t] g = Neg(f) [u] h = Abs(g) [r] m = ReduceSum<keepdims = 0>(h) [a] y = Add(x, m) }",
        '{"edge01_cpu0": ["n", "t", "r"], "edge01_cpu1": ["s", "u", "a"]}',
    )
    yield sliced(
        "sequences between two ranks that take turns",
        "g (float[4] x) => (float[n] z) { [n] i = Neg(x) [s] f = SplitToSequence(i)"
        " [t] g = SequenceInsert(f, x) [r] m = ConcatFromSequence<axis = 0>(g) [a] j = Abs(m)"
        " [b] z = Neg(j) }",
        '{"edge01_cpu0": ["n", "t", "a"], "edge01_cpu1": ["s", "r", "b"]}',
    )
    yield sliced(
        "a bound that no message has room for",
        "g (float[4] x, int64[1] i) => (float[n] y) { [s] f = Tile(x, i) [a] y = Neg(f) }",
        '{"edge01_cpu0": ["s"], "edge01_cpu1": ["a"]}',
        " --at-most f=1000000000",
    )
    yield of_tflite(
        "bounds that a .tflite model cannot have",
        "control_flow",
        "FULLY_CONNECTED_0..MUL_6",
        " --at-most similarity=3 --at-most Relu=4,4 --at-most Sum=3",
    )
    yield of_tflite(
        "open sizes of a .tflite model with variables",
        "open_variable",
        "CALL_ONCE_0..ADD_10",
        " --at-most serving_default_x:0=4,4",
    )
    yield Provoked(
        "operators of TensorFlow itself in a .tflite model",
        BUILD.replace("model.onnx", "flex.tflite"),
        {
            "flex.tflite": model_file("custom_in_between")
            .read_bytes()
            .replace(b"Vendor.Special", b"FlexSpecialErf"),
            "mapping.json": '{"edge01_cpu0": ["RELU_0", "FlexSpecialErf_1", "RELU_2"]}',
        },
    )


def _chain(names: list[str], missing: list[str]) -> bytes:
    """Return a model whose layers and tensors have these names; its last layer lacks inputs."""
    nodes = [
        helper.make_node("Neg", [before], [after], name=f"to {after}")
        for before, after in itertools.pairwise(names)
    ]
    nodes[-1].input.extend(missing)
    value = [helper.make_tensor_value_info(name, 1, [1]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def _external_data() -> Iterator[Provoked]:
    def external(
        title: str, files: Mapping[str, Content] | None = None, **entries: str
    ) -> Provoked:
        weight = onnx.TensorProto(name="w", data_type=1, dims=[4])
        weight.data_location = onnx.TensorProto.EXTERNAL
        for key, value in entries.items():
            weight.external_data.add(key=key, value=value)
        model = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]>'
            " g (float[4] x) => (float[4] y) { y = Mul(x, w) }"
        )
        model.graph.initializer.append(weight)
        bad = {"bad.onnx": model.SerializeToString()}
        return Provoked(title, BUILD.replace("model.onnx", "bad.onnx"), {**bad, **(files or {})})

    sixteen = {"w.data": bytes(16)}
    yield external("a missing file", location="w.data")
    yield external("no file named", offset="0")
    yield external("a file that is too short", {"w.data": bytes(8)}, location="w.data")
    yield external("a pointer of Git LFS", {"w.data": LFS_POINTER}, location="w.data")
    yield external("an offset beyond the end", sixteen, location="w.data", offset="8")
    yield external("an offset that is none", sixteen, location="w.data", offset="-8")
    yield external("a length that is wrong", sixteen, location="w.data", length="12")
    yield external("a file above the model's folder", location="../w.data")
    yield external("an absolute path", location="/etc/passwd")
    link: dict[str, Content] = {"w.data": _link("/etc/passwd")}
    yield external("a link that leads out of the folder", link, location="w.data")
    yield external("a folder", location="folder")
    yield external("a device", {"w.data": os.mkfifo}, location="w.data")
    yield external("a name that wants to break something", location="a\n\u202e\0b" + "w" * 10_000)


def _targets() -> Iterator[Provoked]:
    def target(title: str, target: str, options: str = "", **files: Content) -> Provoked:
        return Provoked(
            title, BUILD.replace("--out new", f"--out {target} {options}").strip(), files
        )

    yield target("a file", "file", file="precious")
    yield target("a folder", "folder")
    yield target("a build folder", "out")
    yield target("a name that mpirun would split", "new:1")
    yield target("a file, with --force", "file", "--force", file="precious")
    yield target("a folder that is no build folder, with --force", "folder", "--force")
    yield target(
        "a link to a build folder, with --force",
        "a-link",
        "--force",
        **{"a-link": _link("out")},
    )
    yield target(
        "a folder with a plan.json of another kind, with --force",
        "photos",
        "--force",
        **{"photos/plan.json": '{"holiday": "Texel"}', "photos/1.jpg": "precious"},
    )
    yield target(
        "a build folder with something else in it, with --force",
        "out",
        "--force",
        **{"out/thesis.tex": "precious"},
    )
    yield target("this folder", ".", "--force")
    yield target("a folder below a file", "file/out", file="precious")
    yield target("a place where nobody may write", "/proc/new")
    yield target("a name that is too long", "n" * 300)
    yield target("a name with a line break", "$'a\\nb/c'", **{"a\nb": "precious"})


def _options() -> Iterator[Provoked]:
    opened: dict[str, Content] = {
        "open.onnx": onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 3] x) => (float[N, 3] y)'
            " { y = Neg(x) }"
        ).SerializeToString()
    }
    for title, option in {
        "an input that the model lacks": "--shape z=1,3",
        "too few sizes": "--shape x=1",
        "another size than the model's": "--shape x=1,4",
        "a huge size": "--shape x=99999999999999999999,3",
        "sizes that are given twice": "--at-most x=5,3 --at-most x=6,3",
        "fixed sizes and a bound": "--shape x=5,3 --at-most x=6,3",
        "an empty bound": "--at-most x=0,3",
    }.items():
        command = f"{BUILD.replace('model.onnx', 'open.onnx')} {option}"
        yield Provoked(title, command, opened)
    for title, option in {
        "more bytes than a message carries": "--shape x=999999999,3",
        "an empty size": "--shape x=0,3",
        "open sizes": "",
    }.items():
        one = {"mapping.json": '{"edge01_cpu0": ["Neg_0"]}'}
        command = f"{BUILD.replace('model.onnx', 'open.onnx')} {option}".rstrip()
        yield Provoked(title, command, {**opened, **one})
    noisy = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3] x) => (float[1, 3] y)'
        " { [noise] n = RandomNormalLike(x) [sum] y = Add(x, n) }"
    ).SerializeToString()
    yield Provoked(
        "random numbers on ranks that take turns",
        BUILD.replace("model.onnx", "noisy.onnx"),
        {"noisy.onnx": noisy, "mapping.json": '{"edge01_cpu0|edge01_cpu1": ["noise", "sum"]}'},
    )
    yield Provoked(
        "a variable on ranks that take turns",
        BUILD.replace("model.onnx", "variable.tflite"),
        {
            "variable.tflite": model_file("variable").read_bytes(),
            "mapping.json": '{"edge01_cpu0|edge01_cpu1": ["CALL_ONCE_0..ASSIGN_VARIABLE_9"]}',
        },
    )
    yield Provoked("a mapping and cuts", f"{BUILD} --cuts 2")
    yield Provoked("a source board without ranks", f"{BUILD} --source-board pi-4b")
    yield Provoked("a source board that is unknown", f"{BUILD} --source-board mars")
    yield Provoked("results that go into a folder", f"{BUILD} --json folder")
    yield Provoked("results that go nowhere", f"{BUILD} --json no/where.json")


def _folders() -> Iterator[Provoked]:
    def plan(title: str, change: Callable[[str], str]) -> Provoked:
        def write(path: Path) -> None:
            path.write_text(change(path.read_text()))

        return Provoked(title, "run out", {"out/plan.json": write})

    def driver(title: str, *words: str) -> Provoked:
        def write(path: Path) -> None:
            path.write_text(path.read_text().replace(*words, 1))

        return Provoked(title, "run out", {"out/driver.py": write})

    def replaced(*words: str) -> Callable[[str], str]:
        return lambda text: text.replace(*words, 1)

    def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
        def edit(text: str) -> str:
            record = json.loads(text)
            change(record)
            return json.dumps(record)

        return edit

    def turns(record: dict[str, Any], rank: int, period: int, *positions: int) -> None:
        record["job"]["ranks"][rank]["turns"] = {"period": period, "positions": positions}

    def parted(record: dict[str, Any]) -> None:
        turns(record, 0, 2, 0)
        turns(record, 1, 2, 1)

    def doubled(record: dict[str, Any]) -> None:
        first, second = record["job"]["ranks"][:2]
        first["sends"].append(first["sends"][0])
        second["receives"].append(second["receives"][0])

    yield Provoked("no such folder", "run nothing")
    yield Provoked("a file", "run model.onnx")
    yield Provoked("a folder that is no build folder", "run folder")
    yield plan("a plan that is empty", lambda text: "")
    yield plan("a plan that ends early", lambda text: text[:500])
    yield plan("a plan that is another file", lambda text: MAPPING)
    yield plan("a plan of an earlier version", replaced('"version": 7', '"version": 6'))
    yield plan("a plan of a later version", replaced('"version": 7', '"version": 8'))
    yield plan("a plan with a key too much", replaced('"source"', '"sauce": 1, "source"'))
    yield plan("a plan with another key", replaced('"minimal"', '"maximal"'))
    yield plan("a plan with another type", replaced('"sink": 2', '"sink": "2"'))
    yield plan(
        "a plan that names a file outside",
        edited(lambda plan: plan["job"]["ranks"][0]["runs"][0].update(file="../../peter.onnx")),
    )
    yield plan("a plan with a rank too much", replaced('"source": 0', '"source": 99'))
    yield plan("a plan with turns of no period", replaced('"period": 1', '"period": 0'))
    yield plan("a plan with a long period", replaced('"period": 1', '"period": 101'))
    yield plan("a plan with no turns", edited(lambda plan: turns(plan, 0, 1)))
    yield plan("a plan with turns out of order", edited(lambda plan: turns(plan, 0, 3, 2, 0)))
    yield plan("a plan whose ranks have no frame in common", edited(parted))
    yield plan("a plan with a tensor that comes twice", edited(doubled))
    yield plan("a plan of deep nesting", lambda text: "[" * 100_000)
    yield plan("a plan with a huge number", replaced('"sink": 2', '"sink": ' + "9" * 5000))
    yield plan("a plan that is not a number", replaced('"sink": 2', '"sink": NaN'))
    for title, before, after in (
        ("a driver that is no Python", "JOB =", "JOB = ="),
        ("a driver of an earlier version", "JOB =", "RANKS ="),
        ("a driver that computes", "source=0", "source=1 - 1"),
        ("a driver with a call of its own", "cores=(0,)", "cores=tuple(range(1))"),
        ("a driver with a field too much", "window=", "widow=1, window="),
        ("a driver that lacks a field", "window=8,", ""),
        ("a driver with another type", "cores=(0,)", "cores=0"),
        ("a driver without cores", "cores=(0,)", "cores=()"),
        ("a driver whose window is none", "window=", "window=-"),
        ("a driver with a rank that is not there", "source=0", "source=99"),
        ("a driver that sends to somebody else", "to=1", "to=2"),
    ):
        yield driver(title, before, after)
    yield Provoked(
        "a runtime of another version",
        "run out",
        {"out/runtime/version.py": "x = 1\n"},
    )


def _runs() -> Iterator[Provoked]:
    arrays = io.BytesIO()
    np.savez(arrays, z=np.zeros((1, 4, 8, 8), np.float32))
    shapes = io.BytesIO()
    np.savez(shapes, x=np.zeros((2, 3, 8, 8), np.float32))
    types = io.BytesIO()
    np.savez(types, x=np.zeros((2, 1, 4, 8, 8), np.float64))
    pickled = io.BytesIO()
    np.savez(pickled, x=np.array([{}, 1], object))
    files: dict[str, Content] = {
        "names.npz": arrays.getvalue(),
        "shapes.npz": shapes.getvalue(),
        "types.npz": types.getvalue(),
        "pickled.npz": pickled.getvalue(),
        "text.npz": "text",
        "clip.mp4": "text",
        "labels.txt": b"\xff",
        "labels.json": '{"cat": 0}',
        "two.txt": "cat\ndog\n",
        "mpich": "#!/bin/sh\necho 'HYDRA build details:'\n",
        "silent": "#!/bin/sh\n",
        "a.png": b"",
        "a.jsonl": "precious",
        "loop.jsonl": _link("a.jsonl"),
        "loop": _link("itself"),
    }
    for title, options in {
        "an input that is not there": "--input nothing.npz",
        "an input that is a link to itself": "--input loop",
        "a folder without images": "--input folder",
        "an image for a model that takes none": "--input a.png",
        "arrays of other names": "--input names.npz",
        "arrays of other shapes": "--input shapes.npz",
        "arrays of another type": "--input types.npz",
        "objects": "--input pickled.npz",
        "text as arrays": "--input text.npz",
        "two inputs": "--input types.npz --input shapes.npz",
        "a video for a model that takes none": "--input clip.mp4",
        "a camera for a model that takes none": "--input camera:0",
        "two folders to follow": "--input follow:a --input follow:b",
        "a video at two rates": "--input clip.mp4 --fps 3 --pull",
        "standard input by hand": "--input - --dry-run",
        "no mpirun": "--mpirun nothing",
        "an mpirun that is a folder": "--mpirun ./folder",
        "an mpirun of another kind": "--mpirun ./mpich",
        "an mpirun that says nothing": "--mpirun ./silent",
        "labels that are not there": "--labels nothing.txt",
        "labels that are no text": "--labels labels.txt",
        "labels of another form": "--labels labels.json",
        "labels that name too few classes": "--labels two.txt",
        "results that go into a folder": "--results folder",
        "results that go nowhere": "--results no/where.bin",
        "lines of no format": "--output r.txt",
        "lines in place of something else": "--output a.jsonl",
        "lines that go nowhere": "--output no/where.jsonl",
        "lines where a link is": "--output loop.jsonl",
        "lines on the mpirun line": "--output - --dry-run",
        "live values of no format": "--live r.txt",
        "live values in place of something else": "--live a.jsonl",
        "live values and JSON on standard output": "--live - --json -",
        "results twice": "--output r.npz --results r.bin",
        "lines and JSON on standard output": "--output - --json -",
        "frames without end and a number of them": "--frames unlimited --frames 5",
        "results that nobody keeps, compared": "--frames unlimited --results /dev/null --verify",
        "negative frames": "--frames -1",
        "no window": "--window 0",
        "a huge window": "--window 99999999999999999999",
        "a rate and a period": "--fps 30 --period-ms 40",
        "frames at no rate": "--fps 0",
        "frames at a negative rate": "--fps -1",
        "frames at no number": "--fps nan",
        "frames at an infinite rate": "--fps inf",
        "a limit of no time": "--frame-timeout 0",
        "a limit that is no number": "--frame-timeout nan",
        "a negative queue": "--queue -1",
        "a word as a number": "--frames many",
        "a size that is none": "--size 0x0",
        "a mean that is none": "--mean 1,x",
        "boxes where there are no images": "--boxes y",
        "boxes in outputs that are not there": "--boxes boxes,scores,classes --input a.png",
        "what boxes are like, without boxes": "--box-form xywh --min-score 0.5 --nms",
        "a score that is none": "--boxes y --min-score high",
        "a recording in place of something else": "--record folder",
        "a recording in place of a file": "--record a.jsonl",
        "a recording of no frames": "--record r --record-frames 0",
        "frames of no recording": "--record-frames 3",
        "a recording by hand": "--record r --dry-run",
        "the line of a run that survives": "--dry-run --survive",
        "standard input for several jobs": "--input - --survive",
        "frames that several jobs may drop": "--overflow drop --survive",
        "standby in a run that does not survive": "--standby",
    }.items():
        needed = {name: content for name, content in files.items() if name in options}
        yield Provoked(title, f"run out {options}", needed)

    def let_output_change(driver: Path) -> None:
        before = 'Tensor("y", "float32", (1, 4, 4, 4))'
        after = before.replace("))", '), symbols=("rows", "", "", ""))')
        driver.write_text(driver.read_text().replace(before, after))

    title = "classes of an output whose shape changes"
    yield Provoked(title, "run out --top 1", {"out/driver.py": let_output_change})


def _reports() -> Iterator[Provoked]:
    yield Provoked("no such folder", "report nowhere")
    yield Provoked("a folder that is no build folder", "report folder")
    yield Provoked("a build folder that was not run", "report out")
    yield Provoked("a build folder twice", "report out ./out")
    yield Provoked("no folder", "report")
    record: dict[str, Content] = {"out/run.json": "text"}
    yield Provoked("a record that is text", "report out", record)
    record = {"out/run.json": '{"format": "rankslice-run", "version": 9}'}
    yield Provoked("a record of another version", "report out", record)
    record = {"out/run.json": '{"format": "rankslice-run", "version": 4, "frames": -1}'}
    yield Provoked("a record with less than it has", "report out", record)
    record = {"out/report.json": '{"ranks": []}'}
    yield Provoked("a report of no ranks", "report out", record)
    yield Provoked("a page in place of a mapping", "report out --html mapping.json")
    yield Provoked("a page of others", "report out --html a.html", {"a.html": "<!DOCTYPE html>"})
    yield Provoked("a page and JSON in one place", "report out --html - --json -")
    yield Provoked("a benchmark's file that is not there", "report a.json")
    yield Provoked("what is no benchmark", "report b.json", {"b.json": "{}"})
    bench = {"b.json": '{"format": "rankslice-benchmark", "version": 99}'}
    yield Provoked("a benchmark of another version", "report b.json", bench)


def _replays() -> Iterator[Provoked]:
    head = {"format": "rankslice-recording", "version": 2}
    good = {
        **head,
        "job_sha256": "",
        "first": 0,
        "frames": 1,
        "completed": 1,
        "route": 0,
        "exact": False,
        "files": {},
    }
    for title, options in {
        "a folder that is not there": "nothing --rank 0",
        "a folder of another kind": "folder --rank 0",
        "a build folder in place of a recording": "out --rank 0",
        "no rank": "folder",
        "a negative rank": "folder --rank -1",
        "frames in words": "folder --rank 0 --frames first",
        "frames from a later to an earlier one": "folder --rank 0 --frames 4-2",
    }.items():
        yield Provoked(title, f"replay {options}")
    for title, content in {
        "a recording that is no JSON": "text",
        "a recording of another version": json.dumps({**head, "version": 9}),
        "a recording without fields": json.dumps(head),
        "a recording of negative frames": json.dumps({**good, "frames": -1, "route": 2}),
        "a recording without a plan": json.dumps(good),
    }.items():
        yield Provoked(title, "replay r --rank 0", {"r/recording.json": content})


def _routes() -> Iterator[Provoked]:
    def surge(title: str, content: Content, **files: Content) -> Provoked:
        return Provoked(title, f"{BUILD} --surge surge.json", {"surge.json": content, **files})

    yield Provoked("a mapping for a surge that is not there", f"{BUILD} --surge nothing.json")
    yield surge("a mapping for a surge that is no JSON", "edge01_cpu0: conv1")
    yield surge("unknown names in the mapping for a surge", '{"edge09_cpu0": ["Conv9"]}')
    yield surge("mistakes in both mappings", '{"edge01_tpu": ["Add1"]}', **{"mapping.json": "{}"})
    yield surge(
        "one core in two ranks of the mapping for a surge",
        json.dumps({"edge01_cpu0-1": LAYERS[:2], "edge01_cpu1": LAYERS[2:]}),
    )
    noisy = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3] x) => (float[1, 3] y)'
        " { [noise] n = RandomNormalLike(x) [sum] y = Add(x, n) }"
    ).SerializeToString()
    one = '{"edge01_cpu0": ["noise", "sum"]}'
    yield surge("random numbers on two routes", one, **{"model.onnx": noisy, "mapping.json": one})

    def folder(title: str, change: Callable[[dict[str, Any]], None]) -> Provoked:
        def write(path: Path) -> None:
            plan = json.loads(path.read_text())
            _second_route(plan["job"])
            plan["surge_minimal"] = True
            change(plan["job"])
            path.write_text(json.dumps(plan))

        return Provoked(title, "run out", {"out/plan.json": write})

    yield folder(
        "a rank that lacks the second route", lambda job: job["ranks"][1].update(surge=None)
    )
    yield folder(
        "turns of no period on the second route",
        lambda job: job["ranks"][0]["surge"]["turns"].update(period=0),
    )
    yield folder(
        "a sub-model of both routes",
        lambda job: job["ranks"][0]["surge"].update(runs=job["ranks"][0]["runs"]),
    )
    yield folder(
        "a tensor that does not arrive on the second route",
        lambda job: job["ranks"][0]["surge"].update(sends=[]),
    )
    traces: dict[str, Content] = {
        "t.txt": "0\n0.5\n",
        "wrong.txt": "0\nsoon\n2\n1\n",
        "none.txt": "",
    }
    for title, options in {
        "a route where there is one": "--switch surge",
        "a mark of a surge where there is one route": "--surge-queue 4",
        "a route that is none": "--switch both",
        "a surge that ends above where it begins": "--normal-below 0.95",
        "a surge that begins beyond the queue": "--surge-queue 20 --queue 10",
        "a rate and times of arrivals": "--arrivals t.txt --fps 30",
        "a period and times of arrivals": "--arrivals t.txt --period-ms 5",
        "times of arrivals that are not there": "--arrivals nothing.txt",
        "times of arrivals that are none": "--arrivals wrong.txt",
        "no times of arrivals": "--arrivals none.txt",
    }.items():
        needed = {name: content for name, content in traces.items() if name in options}
        yield Provoked(title, f"run out {options}", needed)
    yield Provoked("a route to simulate where there is one", "simulate out --switch surge")


def _second_route(job: dict[str, Any]) -> None:
    """Give a job its own route as a second one, too."""
    job["surge_window"] = job["window"]
    for rank in job["ranks"]:
        runs = [{**run, "file": f"{run['file']}.onnx"} for run in rank["runs"]]
        rank["surge"] = {
            "turns": dict(rank["turns"]),
            "receives": rank["receives"],
            "runs": runs,
            "sends": rank["sends"],
        }


def _inspections() -> Iterator[Provoked]:
    def inspect(title: str, arguments: str, **files: Content) -> Provoked:
        return Provoked(title, f"inspect {arguments}", files)

    mapped = "--mapping mapping.json --platform platform.yaml"
    yield inspect("no such model", "modle.onnx")
    yield inspect("a folder that is no build folder", "folder")
    yield inspect(
        "a build folder with options of its own", f"out {mapped} --surge s.json --shape x=1"
    )
    yield inspect("a build folder with a broken plan", "broken", **{"broken/plan.json": "{}"})
    yield inspect("a platform without a mapping", "model.onnx --platform platform.yaml")
    yield inspect("a mapping for a surge without another", "model.onnx --surge surge.json")
    yield inspect("a profile without a mapping", "model.onnx --profile p.json")
    yield inspect(
        "a mapping and a platform that are missing",
        "modle.onnx --mapping maping.json --platform platfrom.yaml",
    )
    yield inspect(
        "a mapping for another model",
        f"model.onnx {mapped}",
        **{"mapping.json": '{"edge01_cpu0": ["c"]}'},
    )
    yield inspect("a number of cuts below zero", "model.onnx --cuts -1")
    yield inspect("a picture that is a folder", "model.onnx --svg folder")
    yield inspect("a picture in a folder that is not there", "model.onnx --svg none/m.svg")
    yield inspect("a picture that finds no room", "model.onnx --svg /dev/full")
    yield inspect("a picture and JSON in one place", "model.onnx --svg - --json -")
    yield inspect("the tables of another kind of file", "model.onnx --object")
    yield inspect(
        "the tables, a mapping and a picture", f"model.onnx --object {mapped} --svg m.svg"
    )
    yield inspect("the tables and the internals", "model.onnx --object --internals")
    yield inspect("the tables and an engine's option", "m.tflite --object --option a=b")
    yield inspect("the internals and a mapping", "m.tflite --internals --mapping mapping.json")
    yield inspect("a picture of the internals", "m.tflite --internals --svg m.svg")
    yield inspect("the internals of other sizes", "m.tflite --internals --shape x=1")
    yield inspect("the internals of another kind of file", "model.keras --internals")
    yield inspect("the internals of a folder of other sizes", "out --internals --shape x=1,4,8,8")
    yield inspect("the internals of a rank of a model", "model.onnx --internals --rank 1")
    yield inspect("the internals of a rank that is not there", "out --internals --rank 9")
    yield inspect("a rank without the internals", "out --rank 1")
    yield inspect("a delegate for onnxruntime", "model.onnx --internals --delegate libX.so")
    yield inspect("an accelerator without a provider", "model.onnx --internals --accelerator npu")
    yield inspect("a delegate without the internals", "model.onnx --delegate libX.so")
    yield inspect(
        "a delegate and an accelerator", "m.tflite --internals --delegate libX.so --accelerator npu"
    )
    yield inspect("an option without a value", "m.tflite --internals --option backend_type")


def _traces() -> Iterator[Provoked]:
    def trace(title: str, arguments: str) -> Provoked:
        return Provoked(title, f"trace {arguments}")

    yield trace("a folder that is no build folder", "folder")
    yield trace("a page in place of something else", "out --html out/plan.json")
    yield trace("one file for two purposes", "out --html t --json t")
    yield trace("frames where nothing is run", "out --failure --frames 5")
    yield trace("no failure", "out --failure")
    yield trace("operators of too many frames", "out --operators --frames 5000")


def _simulations() -> Iterator[Provoked]:
    def simulate(title: str, arguments: str, **files: Content) -> Provoked:
        return Provoked(title, f"simulate {arguments}", files)

    mapped = "model.onnx --mapping mapping.json --platform platform.yaml"
    yield simulate("no such model", "modle.onnx --mapping mapping.json")
    yield simulate("a folder that is no build folder", "folder")
    yield simulate("a model without a mapping", "model.onnx")
    yield simulate("a build folder and a mapping", "out --mapping mapping.json")
    yield simulate("a build folder and a shape", "out --shape x=1,4,8,8")
    yield simulate("a build folder on another platform's boards", "out --platform platform.yaml")
    yield simulate("ranks that compute, without a profile", mapped)
    yield simulate("a profile that is missing", f"{mapped} --profile profil.json")
    yield simulate(
        "a profile that is none", f"{mapped} --profile p.json", **{"p.json": '{"boards": 1}'}
    )
    yield simulate(
        "a profile of another version",
        f"{mapped} --profile p.json",
        **{"p.json": '{"format": "rankslice-profile", "version": 99}'},
    )
    yield simulate(
        "a profile of another model", f"{mapped} --profile p.json", **{"p.json": _empty_profile}
    )
    yield simulate("a rate and a trace", "out --fps 30 --arrivals t.txt", **{"t.txt": "0\n"})
    yield simulate("a surge that ends above where it begins", "out --normal-below 0.9")
    yield simulate("two kinds of scatter", "out --scatter --jitter 0.1")
    yield simulate("no frames", "out --frames 0")
    yield simulate("a page and JSON in one place", "out --html - --json -")
    yield simulate("a page in a folder that is not there", "out --html none/t.html")


def _benchmarks() -> Iterator[Provoked]:
    def bench(title: str, arguments: str, **files: Content) -> Provoked:
        return Provoked(title, f"bench {arguments}", files)

    yield bench("a folder that is no build folder", "folder")
    yield bench("against one that is none", "out --against folder")
    yield bench("three folders", "out out out")
    yield bench("too few frames for a rate", "out --frames 20")
    yield bench("more frames than events are kept for", "out --frames 1000000")
    yield bench("a source that gives each frame once", "out --input -")
    yield bench("rates of a camera", "out --input camera:0 --fps 30")
    yield bench("shares of a camera's rate", "out --input camera:0 --load-levels 50")
    yield bench("queries from a camera", "out --input camera:0 --scenario single")
    yield bench("a rate and shares of one", "out --fps 30 --load-levels 50")
    yield bench("shares that are none", "out --load-levels 50,high")
    yield bench("a share of more than all", "out --load-levels 120")
    yield bench("a server without rate and limit", "out --scenario server")
    yield bench("a rate that a scenario sets", "out --scenario single --target-fps 9")
    yield bench("too few queries for a percentile", "out --scenario single --frames 63")
    yield bench("too few queries of eight frames", "out --scenario multi --frames 662")
    yield bench("several starts of a scenario", "out --scenario single --starts 3")
    yield bench("the limit of a server without a scenario", "out --latency-limit-ms 9")
    yield bench("work of no co-runner", "out --busy 50")
    yield bench("a co-runner beside two jobs", "out folder --load cpu")
    yield bench("a co-runner that never works", "out --load memory --busy 0,50")
    yield bench("frequencies without units", "out --frequency 1.2,1800")
    yield bench("frequencies of two jobs", "out folder --frequency 1.2G")
    yield bench("a table of frequencies without any", "out --csv f.csv")
    yield bench("values where the page goes", "out --out b.html")
    yield bench("values in the place of something else", "out --out b.json", **{"b.json": "{}"})


def _empty_profile(path: Path) -> None:
    """Write a profile of another model, of which nothing was measured."""
    model = {"name": "other.onnx", "sha256": "0" * 64, "inputs": [], "layers": ["a"]}
    record = {"format": "rankslice-profile", "version": 4, "model": model, "kinds": [], "seen": []}
    path.write_text(json.dumps(record))


def _profiles() -> Iterator[Provoked]:
    def profile(title: str, arguments: str, **files: Content) -> Provoked:
        return Provoked(title, f"profile {arguments}", files)

    version = '{"format": "rankslice-profile", "version": 7, "model": {}, "kinds": []}'
    twice = '{"format": "rankslice-profile", "version": 4, "model": {"name": 1}, "kinds": {}}'
    yield profile(
        "a model and a platform that are missing", "modle.onnx --platform platfrom.yaml -o new"
    )
    yield profile("a Keras model", "bad.keras -o new", **{"bad.keras": "no archive"})
    yield profile("a file to go on with that is no profile", "model.onnx -o mapping.json")
    yield profile(
        "a file to go on with of another model",
        "model.onnx -o p.json",
        **{"p.json": _empty_profile},
    )
    yield profile("a profile of another version", "model.onnx -o old.json", **{"old.json": version})
    yield profile("a profile with mistakes", "model.onnx -o old.json", **{"old.json": twice})
    yield profile("a profile on stdout", "model.onnx -o -")
    yield profile("both anew and beside what there is", "model.onnx --fresh --again")
    yield profile("a folder instead of a file", "model.onnx -o folder")
    yield profile("a file in a folder that is not there", "model.onnx -o none/profile.json")
    keys = "model.onnx --platform platform.yaml -o new --accelerators"
    yield profile("accelerators that the boards lack", f"{keys} 'edge01_gpu;edge02_cpu0;edge01'")
    yield profile(
        "accelerators that take turns",
        f"{keys} 'edge01_cpu0|edge01_cpu1;edge01_cpu2*2,edge01_cpu3'",
    )
    yield profile("an accelerator twice", f"{keys} 'edge01_cpu0;edge01_cpu1;edge01_cpu0'")
    other = "boards: {edge01: {host: localhost, cores: 1, engine: litert}}"
    yield profile(
        "an engine that runs models of another format",
        "model.onnx --platform litert.yaml -o new",
        **{"litert.yaml": other},
    )
    yield profile("a configuration for ssh that is not there", "model.onnx --ssh-config none")
    yield profile("frames for a model whose sizes never change", "model.onnx --input f.npz -o new")


def _explorations() -> Iterator[Provoked]:
    def explore(title: str, arguments: str, **files: Content) -> Provoked:
        return Provoked(title, f"explore model.onnx --platform platform.yaml {arguments}", files)

    yield explore("a configuration for ssh that is not there", "--out new --ssh-config none")
    yield explore(
        "accelerators that take turns", "--out new --accelerators 'edge01_cpu0|edge01_cpu1'"
    )
    yield explore("no such profile", "--profile profle.json --out new")
    yield explore(
        "a profile that is none", "--profile mapping.json --out new --method nsga2 --generations 2"
    )
    yield explore("objectives that are none", "--objectives throughput,memmory,speed --out new")
    yield explore("a probability above one", "--mutation 1.5 --out new")
    yield explore("trials of a search that runs nothing", "--evaluations 10 --out new")
    yield explore("a surge without a usual rate", "--surge-fps 80 --out new")
    yield explore("a surge of fewer frames than usual", "--surge-fps 80 --fps 90 --out new")


def _probes() -> Iterator[Provoked]:
    for title, arguments in {
        "no board": "probe",
        "hosts that are none": "probe -o new -- -oProxyCommand=x 'a b' pi@ x$y@edge01",
        "a host twice": "probe edge01 pi@edge01 --out new",
        "a platform file that is there": "probe local --out platform.yaml",
        "a folder instead of a file": "probe local --out folder --force",
        "a file in a folder that is not there": "probe local --out none/boards.yaml",
        "platform and JSON in one place": "probe local --out - --json -",
        "a configuration for ssh that is not there": "probe edge01 --ssh-config none --out new",
        "an mpirun for nothing": "probe local --mpirun mpirun",
        "a check of a platform that is missing": "probe --check none.yaml",
        "a check of a platform with mistakes": "probe --check mapping.json",
        "a check with a folder that is no build folder": "probe --check platform.yaml folder",
        "a check with two build folders": "probe --check platform.yaml out out",
    }.items():
        yield Provoked(title, arguments)
