"""Jobs under a real mpirun, whose ranks sleep instead of computing."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import psutil
import pytest
from jobs import NO_TURNS, Weights, turn_keys
from onnx import TensorProto, helper

from rankslice.backend.codegen import render_driver
from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan, plan_to_json
from rankslice.measurement.verify import Verification
from rankslice.session.build_folder import read_plan
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.run import prepare, run

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"
CORES = sorted(os.sched_getaffinity(0))

FAILING_ENGINE = '''

class _Failing(NullEngine):
    """Fails at the frame of the rank's own that its option ``fails`` names, counted from 0."""

    frame = 0

    def run(self, inputs, outputs):
        if self.frame == self.fails:
            raise RuntimeError("the accelerator is gone")
        super().run(inputs, outputs)
        self.frame += 1


def open_engine(settings):
    engine = _Failing(float(settings.options["sleep_ms"]) / 1e3)
    engine.fails = int(settings.options.get("fails", -1))
    return engine
'''
"""For :func:`let_ranks_sleep`."""

DEBIANS_MPIRUN = Path("/usr/bin/mpirun")


def wheels_mpirun() -> Path:
    return find_mpirun().path


def debians_mpirun() -> Path:
    """Return Debian's mpirun of Open MPI 4.1; skip the test where there is none."""
    try:
        found = find_mpirun(DEBIANS_MPIRUN)
    except RankSliceError as error:
        pytest.skip(f"Debian's Open MPI 4.1 is not here (apt-get install openmpi-bin): {error}")
    if found.version[:2] != (4, 1):
        pytest.skip(f"{DEBIANS_MPIRUN} is not of Open MPI 4.1 but of {found.version}")
    return found.path


def verified(
    folder: Path, frames: int, *inputs: Path, exact: bool = True, window: int | None = None
) -> Verification:
    """Run a build folder; return what the comparison with the unsliced model says."""
    options = RunOptions(tuple(map(str, inputs)), frames=frames, exact=exact, window=window)
    verdict = run(prepare(folder, options), verify=True).summary.verify
    assert verdict is not None
    return verdict


def check_exact(folder: Path, frames: int, *inputs: Path, window: int | None = None) -> None:
    """Expect every bit of the unsliced model from a job."""
    verdict = verified(folder, frames, *inputs, window=window)
    assert ("", True, frames) == (verdict.complaint, verdict.bit_equal, verdict.frames)


def check_as_deployed(folder: Path, frames: int, *inputs: Path) -> None:
    """Expect the results of the unsliced model, apart from rounding."""
    verdict = verified(folder, frames, *inputs, exact=False)
    assert ("", frames) == (verdict.complaint, verdict.frames)
    assert verdict.max_rel_diff <= 1e-5


def chain(layers: int, width: int = 16, *, result_width: int | None = None) -> onnx.ModelProto:
    """Return a model of layers ``L0``, ``L1``, ... in a row, float32 of shape [1, width].

    The last layer cuts its result down to ``result_width`` values, if that is given.
    """
    names = ["x", *(f"t{number}" for number in range(layers - 1)), "y"]
    nodes = [
        helper.make_node("Relu", [before], [after], name=f"L{number}")
        for number, (before, after) in enumerate(itertools.pairwise(names))
    ]
    weights = []
    if result_width is not None:
        weights = [
            helper.make_tensor(name, TensorProto.INT64, [1], [value])
            for name, value in {"begin": 0, "end": result_width, "axis": 1}.items()
        ]
        last = nodes.pop()
        inputs = [last.input[0], "begin", "end", "axis"]
        nodes.append(helper.make_node("Slice", inputs, ["y"], name=last.name))
    result = [1, result_width or width]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shared_keys(ranks: int) -> list[str]:
    """Return mapping keys that spread ranks over the cores of this machine."""
    keys = []
    for rank in range(ranks):
        turn, core = divmod(rank, len(CORES))
        keys.append(f"local_cpu{CORES[core]}" + (f".{turn + 1}" if turn else ""))
    return keys


def chain_folder(
    folder: Path,
    entries: int,
    model: onnx.ModelProto | None = None,
    weights: Weights = NO_TURNS,
    *,
    usually_whole: bool = False,
) -> Path:
    """Slice a chain, one layer an entry of the mapping; return the build folder.

    An entry is one rank, or several that take turns by their weights. If the chain is
    ``usually_whole``, the slices are for a surge, and the first rank has all layers otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model or chain(entries), folder / "model.onnx")
    ranks = sum(len(weights.get(entry, (1,))) for entry in range(entries))
    keys = turn_keys(entries, weights, shared_keys(ranks).__getitem__)
    mapping = {key: [f"L{entry}"] for entry, key in enumerate(keys)}
    sliced, whole = folder / "mapping.json", folder / "whole.json"
    sliced.write_text(json.dumps(mapping))
    whole.write_text(json.dumps({next(iter(mapping)): [f"L{n}" for n in range(entries)]}))
    return build(
        folder / "model.onnx",
        whole if usually_whole else sliced,
        "local",
        folder / "out",
        BuildOptions(share_cores=True, surge=sliced if usually_whole else None),
    ).folder


def digits_folder(place: Path) -> Path:
    """Slice the digits' network for two ranks; return the build folder."""
    first, second = shared_keys(2)
    mapping = {first: ["conv1..pool1"], second: ["conv3..softmax"]}
    (place / "mapping.json").write_text(json.dumps(mapping))
    options = BuildOptions(share_cores=True)
    return build(DIGITS, place / "mapping.json", "local", place / "out", options).folder


def change_plan(folder: Path, change: Callable[[Plan], Plan]) -> None:
    """Put another plan into a build folder, with the driver that belongs to it."""
    plan = change(read_plan(folder))
    replace_file(folder / "plan.json", plan_to_json(plan).encode())
    replace_file(folder / "driver.py", render_driver(plan).encode())


def replace_file(path: Path, content: bytes) -> None:
    """Write a file anew, for its package has the same file under another name."""
    path.unlink()
    path.write_bytes(content)


def let_ranks_sleep(
    folder: Path,
    sleep_ms: float,
    *,
    engine: str = "",
    options: dict[int, dict[str, str]] | None = None,
) -> Path:
    """Change a build folder so that its ranks sleep instead of computing; return it.

    Args:
        folder: to change.
        sleep_ms: the time of a run in milliseconds.
        engine: Python text added to the null engine of the folder's own copy of the runtime.
        options: of the engine, by rank.
    """

    def sleeping(plan: Plan) -> Plan:
        ranks = tuple(
            replace(
                rank,
                engine="null",
                options=(
                    ("sleep_ms", str(sleep_ms)),
                    *sorted((options or {}).get(rank.rank, {}).items()),
                ),
            )
            for rank in plan.ranks
        )
        return plan.with_ranks(ranks)

    change_plan(folder, sleeping)
    code = folder / "runtime" / "engines" / "null_engine.py"
    replace_file(code, code.read_bytes() + engine.encode())
    return folder


def give_sensors(folder: Path, system: Path, nvml: str = "none.so") -> None:
    """Change a build folder so that its ranks look for sensors in ``system`` and not in /sys.

    ``nvml`` takes the place of the library of NVIDIA's driver.
    """
    for name, before, after in (
        (
            "system/board/energy.py",
            "root: Path = ROOT",
            f"root: Path = Path({str(system.parent)!r})",
        ),
        ("system/board/nvml.py", 'LIBRARY = "libnvidia-ml.so.1"', f"LIBRARY = {nvml!r}"),
    ):
        code = folder / "runtime" / name
        text = code.read_text()
        assert 1 == text.count(before)
        replace_file(code, text.replace(before, after).encode())


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the processes with a path of the folder in their command line, ``info["cmdline"]``.

    It is kept there, as a process that has ended meanwhile has none any more. Signals go to them by
    ``os.kill``: psutil's own would take a process for another one once the machine's clock was set.
    """
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if str(folder) in " ".join(process.info["cmdline"] or ())
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def ranks_of(folder: Path) -> dict[int, psutil.Process]:
    """Return the running ranks of a build folder."""
    driver = str(folder / "driver.py")
    ranks = {}
    for process in processes_of(folder):
        try:
            if process.info["cmdline"][1:2] == [driver]:
                ranks[int(process.environ()["OMPI_COMM_WORLD_RANK"])] = process
        except (psutil.Error, KeyError):
            continue
    return ranks
