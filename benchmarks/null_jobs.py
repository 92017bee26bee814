"""Build folders whose ranks sleep for a given time instead of computing."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from rankslice.backend.package import write_driver, write_packages
from rankslice.commands.build.build import BuildOptions, build
from rankslice.framework.plan import Plan


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
    mapping: dict[str, list[str]] = {key: [] for key in _keys(len(sleeps_ms))}
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
    changed = dataclasses.replace(plan, ranks=tuple(sleeping))
    shutil.rmtree(folder / "packages")
    write_driver(folder, changed)
    write_packages(folder, changed)
    return changed


def _keys(ranks: int) -> list[str]:
    """Return mapping keys that spread ranks over the cores of this machine."""
    cores = sorted(os.sched_getaffinity(0))
    keys = []
    for rank in range(ranks):
        turn, core = divmod(rank, len(cores))
        keys.append(f"local_cpu{cores[core]}" + (f".{turn + 1}" if turn else ""))
    return keys
