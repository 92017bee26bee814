"""A build folder: the names of what lies in it, its plan, and the model that was sliced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rankslice.backend.boards.login import FILE as BOARDS_FILE
from rankslice.framework.engines import submodel_formats
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.plan import Plan, plan_from_json
from rankslice.framework.reading.read_driver import read_driver
from rankslice.measurement.trace import LAST_FAILURE

if TYPE_CHECKING:
    from rankslice.frontend.formats import Model

PLAN, DRIVER = "plan.json", "driver.py"
REFERENCE = "model"
"""The link that leads to the unsliced model."""
RESULTS, REPORT = "results.bin", "report.json"
"""What a run leaves here, and on the sink's board."""
RUN = "run.json"
"""What the launcher knows of the last run besides."""
BENCH, BENCH_PAGE = "bench.json", "bench.html"
"""What a benchmark leaves here."""
SSH_CONFIG = "ssh_config"
"""Names accounts for ssh, if the platform does."""
SURVIVAL, SURVIVAL_FILES = "survival.json", "survival"
"""Which boards may be lost, and what planning without them needs."""
LINKS = "links.yaml"
"""A platform file with the boards and the links between them, if there are any."""
TRACE = "trace.html"
WITHOUT = "without"
"""Has a build folder for each board that may be lost."""


def converted_name(submodels: str) -> str:
    return f"model.{submodels}"


def with_wires_name(submodels: str) -> str:
    """Name the model with the conversions of what crosses between boards."""
    return f"model-with-conversions.{submodels}"


OWN_ENTRIES = frozenset(
    {
        *(PLAN, "sender.json", "receiver.json", "rankfile", "hostfile"),
        *(DRIVER, "runtime", "submodels", "packages", REFERENCE, TRACE),
        *map(converted_name, submodel_formats()),
        *map(with_wires_name, submodel_formats()),
        *(f"{with_wires_name(kind)}.data" for kind in submodel_formats()),
        *(BOARDS_FILE, SSH_CONFIG, RESULTS, REPORT, RUN, BENCH, BENCH_PAGE),
        *(LINKS, SURVIVAL, SURVIVAL_FILES, WITHOUT, LAST_FAILURE),
    }
)
"""What builds and runs put into a build folder: with anything else in it, it is not replaced."""


def is_build_folder(path: Path) -> bool:
    return (path / PLAN).is_file()


def read_plan(folder: Path) -> Plan:
    """Return the plan of a build folder, with the job of its driver.

    Raises:
        RankSliceError: the folder is no build folder, or its driver contradicts itself.
    """
    file = folder / PLAN
    if not file.is_file():
        found = f"has no {PLAN}" if folder.is_dir() else "no such folder"
        raise RankSliceError(
            Mistake(str(folder), found, "make a build folder with: rankslice build")
        )
    plan = plan_from_json(read_text(file, "a plan"), str(file))
    job = read_driver(folder / DRIVER)
    return plan if job == plan.job else replace(plan, job=job)


EDITED = "driver.py differs from plan.json: it was edited, and decides"


def renew(folder: Path, plan: Plan, *, packages: bool = False) -> None:
    """Bring what an edited driver says into tables, files for mpirun, and packages if wanted.

    ``plan``: from :func:`read_plan`. Without an edit nothing is written.

    Raises:
        RankSliceError: a file cannot be written, or mpirun could not read the name of a host.
    """
    from rankslice.backend.package import renew_packages  # imports take their time
    from rankslice.frontend.plan.tables import write_tables

    try:
        write_tables(folder, plan)
        if packages:
            renew_packages(folder, plan)
    except OSError as error:
        found = f"cannot be written: {error.strerror}"
        expected = "the driver was edited, and what was made of it must follow"
        raise RankSliceError(Mistake(str(error.filename or folder), found, expected)) from None


def is_edited(folder: Path, plan: Plan) -> bool:
    """Compare the job of a driver, which a plan has, with the one that was built."""
    return plan.job != plan_from_json(read_text(folder / PLAN, "a plan")).job


def refuse_other_folders(path: Path) -> None:
    if path.is_dir() and not is_build_folder(path):
        from rankslice.frontend.formats import is_saved_model

        if is_saved_model(path):
            return
        expected = "expected a model file, or a folder made by 'rankslice build'"
        raise RankSliceError(Mistake(str(path), f"is a folder without {PLAN}", expected))


def unsliced_model(folder: Path, plan: Plan, purpose: str) -> Path:
    """Return the file of the model that was sliced; messages have the purpose: ``inspect it``."""
    from rankslice.frontend.formats import model_sha256  # imports take their time

    link = folder / REFERENCE
    hint = f"build again to {purpose}"
    if not link.exists():
        raise RankSliceError(Mistake(str(link), f"does not lead to {plan.model.name}", hint))
    model = link.resolve()
    if model_sha256(model) != plan.model.sha256:
        raise RankSliceError(Mistake(str(model), "has changed since it was sliced", hint))
    return model


def reference_model(folder: Path, plan: Plan, purpose: str, *, converts: bool = True) -> Path:
    """Return the unsliced model, in the format of its slices; messages have the purpose.

    ``converts``: with what is converted on its way, if anything is.
    """
    if plan.conversions and converts:
        return folder / with_wires_name(plan.model.format)
    converted = folder / converted_name(plan.model.format)
    return converted if converted.is_file() else unsliced_model(folder, plan, purpose)


def built_model(folder: Path, plan: Plan, purpose: str, *, converts: bool = False) -> Model:
    """Return the model of a build folder, with the sizes that it was built with.

    Messages have the purpose: ``inspect it``. ``converts``: with what is converted on its way.

    Raises:
        RankSliceError: it is not there any more, has changed, or cannot be read.
    """
    from rankslice.frontend.formats import find_format, read_model  # imports take their time
    from rankslice.frontend.formats.input_shapes import GivenSizes

    find = reference_model if converts and plan.conversions else unsliced_model
    model = find(folder, plan, purpose)
    tensors = plan.job.tensors
    brought = [tensors[name] for name in plan.inputs]
    fixed = {tensor.name: tensor.shape or () for tensor in brought if not tensor.is_open}
    kind = find_format(model)
    bounded = brought if kind is not None and kind.is_converted else plan.job.tensors.values()
    at_most = {tensor.name: tensor.shape or () for tensor in bounded if tensor.is_open}
    loaded = read_model(model, GivenSizes(fixed, at_most))
    # Of an input with open sizes, others may be fixed that the file leaves open.
    closed = {
        symbol: (size,)
        for tensor in loaded.graph.inputs
        if tensors[tensor.name].is_open
        for symbol, wanted, size in zip(
            tensor.symbols, tensors[tensor.name].symbols, tensor.shape or (), strict=True
        )
        if symbol and not wanted
    }
    if closed:
        loaded = read_model(model, GivenSizes({**fixed, **closed}, at_most))
    if kind is None:
        return loaded
    engines: dict[str, set[str]] = {}
    for segment in (segment for segment in plan.segments if segment.layers):
        engine = segment.engine or plan.ranks[segment.rank].engine
        engines.setdefault(segment.layers[0].partition("/")[0], set()).add(engine)
    as_built: Model = kind.for_engines(loaded, engines)
    return as_built


def check_ssh_config(path: Path | None) -> None:
    if path is not None and not path.is_file():
        raise RankSliceError(Mistake(str(path), "no such file", "choose another --ssh-config"))
