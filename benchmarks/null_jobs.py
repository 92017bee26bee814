"""Build folders whose ranks compute nothing: they sleep for a given time, or stamp frames."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from rankslice.backend.package import write_driver, write_packages
from rankslice.framework.plan import Plan
from rankslice.session.building.build import BuildOptions, build

_PARTS = """
<ir_version: 8, opset_import: ["" : 17]>
parts (float[1,1] x0) => (float[1,1] y) <{shapes}> {{
{layers}
}}
"""

_STAMPING = Path(__file__).with_name("gaps.py")


def null_folder(
    place: Path,
    model: str,
    layers: Sequence[str],
    ranks: Mapping[str, int],
    sleeps_ms: Sequence[float],
) -> Path:
    """Slice a model for ranks that compute nothing; return the build folder.

    Args:
        place: an existing folder to build in.
        model: a model in the text form of ``onnx.parser``.
        layers: names of its layers, in order.
        ranks: of the layers.
        sleeps_ms: how long each segment of a rank takes, by rank, in milliseconds.
    """
    proto = onnx.parser.parse_model(model)
    for node, name in zip(proto.graph.node, layers, strict=True):
        node.name = name
    onnx.save(proto, place / "model.onnx")
    mapping: dict[str, list[str]] = {key: [] for key in keys_of_cores(len(sleeps_ms))}
    for name, rank in ranks.items():
        mapping[list(mapping)[rank]].append(name)
    (place / "mapping.json").write_text(json.dumps(mapping))
    out = place / f"sleep-{'-'.join(f'{sleep:g}' for sleep in sleeps_ms)}"
    plan = build(
        place / "model.onnx", place / "mapping.json", "local", out, BuildOptions(share_cores=True)
    ).plan
    let_sleep(out, plan, sleeps_ms)
    return out


def let_sleep(folder: Path, plan: Plan, sleeps_ms: Sequence[float]) -> Plan:
    """Let the ranks of a build folder sleep instead of computing; return the folder's new plan.

    Args:
        folder: the build folder.
        plan: as it was built.
        sleeps_ms: how long each segment of a rank takes, by rank, in milliseconds.
    """
    sleeping = (
        dataclasses.replace(rank, engine="null", options=(("sleep_ms", f"{sleep:g}"),))
        for rank, sleep in zip(plan.ranks, sleeps_ms, strict=True)
    )
    changed = plan.with_ranks(tuple(sleeping))
    shutil.rmtree(folder / "packages")
    write_driver(folder, changed)
    write_packages(folder, changed)
    return changed


def parts_model(sizes: Sequence[int]) -> tuple[onnx.ModelProto, list[list[str]]]:
    """Return a model whose parts hand on tensors of these sizes, in bytes; and each part's layers.

    A layer makes one number of what comes in, the next one makes a tensor of it.
    """
    widths = [size // 4 for size in sizes]
    shapes = ", ".join(
        f"int64[2] s{number} = {{1, {width}}}" for number, width in enumerate(widths, 1)
    )
    lines, parts = [], []
    for number in range(1, len(widths) + 2):
        is_last = number == len(widths) + 1
        made = "y" if is_last else f"m{number}"
        lines.append(f"  {made} = ReduceMax <axes = [1], keepdims = 1> (x{number - 1})")
        names = [f"one{number}"]
        if not is_last:
            lines.append(f"  x{number} = Expand (m{number}, s{number})")
            names.append(f"many{number}")
        parts.append(names)
    text = _PARTS.format(shapes=shapes, layers="\n".join(lines))
    model = onnx.parser.parse_model(text if shapes else text.replace("<>", ""))
    for node, name in zip(model.graph.node, itertools.chain(*parts), strict=True):
        node.name = name
    return model, parts


def let_stamp(folder: Path, plan: Plan, options: Sequence[Mapping[str, str]]) -> Plan:
    """Have ``gaps.py`` be the engine of a build folder's ranks; return the folder's new plan.

    Args:
        folder: the build folder, to be run on this machine alone.
        plan: as it was built.
        options: of the engine, by rank.
    """
    shutil.copy(_STAMPING, folder / "runtime" / "engines" / "gaps_engine.py")
    stamping = (
        dataclasses.replace(rank, engine="gaps", options=tuple(own.items()))
        for rank, own in zip(plan.ranks, options, strict=True)
    )
    changed = plan.with_ranks(tuple(stamping))
    write_driver(folder, changed)
    return changed


def channel_folder(place: Path, size: int, turns: Path, log: Path) -> Path:
    """Return a build folder of two ranks: the first sends frames in turns, the second notes them.

    Args:
        place: an existing folder to build in.
        size: of the tensor between both, in bytes.
        turns: the FIFO that tells the turns.
        log: the file for the records.
    """
    model, parts = parts_model([size])
    onnx.save(model, place / "model.onnx")
    (place / "mapping.json").write_text(json.dumps(dict(zip(keys_of_cores(2), parts, strict=True))))
    options = BuildOptions(share_cores=True)
    built = build(place / "model.onnx", place / "mapping.json", "local", place / "out", options)
    let_stamp(built.folder, built.plan, [{"turns": str(turns)}, {"log": str(log)}])
    return built.folder


def keys_of_cores(ranks: int) -> list[str]:
    """Return mapping keys that spread ranks over the cores of this machine."""
    cores = sorted(os.sched_getaffinity(0))
    keys = []
    for rank in range(ranks):
        turn, core = divmod(rank, len(cores))
        keys.append(f"local_cpu{cores[core]}" + (f".{turn + 1}" if turn else ""))
    return keys
