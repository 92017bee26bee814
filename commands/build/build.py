"""``rankslice build``: model + mapping + platform to a build folder that mpirun can run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from rankslice.backend.launch.mpirun import open_mpi_requirements
from rankslice.backend.package import write_driver, write_packages
from rankslice.backend.runtime.engines import ENGINES
from rankslice.backend.wheels import wheels_for
from rankslice.commands.build.conversion import Quantisation, conversion_of
from rankslice.commands.planning import MakeMapping, plan_model
from rankslice.commands.run.run import CONVERTED, REFERENCE, REFERENCE_ENGINES
from rankslice.commands.run_folder import living_runs
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.files.new_folder import new_folder
from rankslice.framework.files.ordinary_file import open_ordinary
from rankslice.framework.mapping import Mapping as LayerMapping
from rankslice.framework.mapping import Placements
from rankslice.framework.plan import FORMAT, Plan
from rankslice.framework.platform import Board, Platform
from rankslice.framework.reach import FILE as BOARDS_FILE
from rankslice.framework.reach import reaches_to_json
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.wording import listed, quoted
from rankslice.frontend.formats.keras.merging import split_normalisations
from rankslice.frontend.formats.keras.reader import KERAS_SUFFIXES, KerasModel
from rankslice.frontend.formats.keras.writer import Conversion, keras_submodel
from rankslice.frontend.formats.onnx.reader import OnnxModel
from rankslice.frontend.formats.pieces import write_pieces
from rankslice.frontend.formats.registry import Model, submodel_files
from rankslice.frontend.formats.tflite.operators import flex_operators
from rankslice.frontend.formats.tflite.reader import TfliteModel
from rankslice.frontend.partition.partition import Partition
from rankslice.frontend.partition.quantised_cuts import parted_groups, parted_signed_averages
from rankslice.frontend.plan.rankfile import hostfile, rankfile
from rankslice.frontend.plan.tables import receiver_table, sender_table, table_to_json

__all__ = ["OWN_ENTRIES", "Build", "build"]

_FLOAT32 = Quantisation()

OWN_ENTRIES = frozenset(
    {
        *("plan.json", "sender.json", "receiver.json", "rankfile", "hostfile"),
        *("driver.py", "runtime", "submodels", "packages", REFERENCE, CONVERTED),
        *(BOARDS_FILE, "ssh_config", "results.bin", "report.json"),
    }
)
"""What builds and runs put into a build folder: with anything else in it, it is not replaced."""


@dataclass(frozen=True, slots=True)
class Build:
    """A build folder, complete."""

    folder: Path
    plan: Plan
    packages: tuple[Path, ...]
    """One folder per board."""
    warnings: tuple[str, ...]


def build(
    model: Path,
    mapping: Path | MakeMapping,
    platform: str | Path,
    out: Path,
    *,
    quantisation: Quantisation = _FLOAT32,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    share_cores: bool = False,
    source_board: str | None = None,
    literally: bool = False,
    force: bool = False,
    archive: bool = False,
    wheels: str = "",
    on_step: Callable[[str], None] = lambda step: None,
) -> Build:
    """Slice a model and write everything that its ranks need.

    Args:
        model: an ``.onnx``, ``.tflite``, ``.keras`` or ``.h5`` file.
        mapping: a JSON file: accelerators and their layers; or what makes it, such as
            :func:`rankslice.commands.build.cuts.mapping_of_cuts`.
        platform: a YAML or AutoDiCE ``.txt`` file, or ``local`` for this machine.
        out: the folder to make; it appears complete or not at all.
        quantisation: types of a Keras model's sub-models.
        shapes: sizes of model inputs that the model leaves open.
        share_cores: let several ranks have the same cores.
        source_board: board where frames enter; that of the first layer by default.
        literally: leave normalisations of a Keras model on the ranks that the mapping says,
            instead of on those of the layers into which converting would merge them.
        force: replace a build folder at ``out``.
        archive: also write each package as a ``.tar``.
        wheels: a folder of wheels, or ``download``: what boards install goes into their packages.
        on_step: told what is being done.

    Raises:
        RankSliceError: with all mistakes that were found.
    """
    boards: tuple[Board, ...] = ()

    def where(wanted: LayerMapping, found: Platform) -> Placements:
        nonlocal boards
        boards = found.boards
        return _place(wanted, found, share_cores, _engines(model))

    planned = plan_model(
        model,
        mapping,
        platform,
        shapes=shapes,
        source_board=source_board,
        literally=literally,
        where=where,
        on_step=on_step,
    )
    loaded, cut, plan = planned.model, planned.partition, planned.plan
    raise_mistakes(_operators_without_engine(loaded, cut, plan))
    conversion = conversion_of(loaded, quantisation)
    with (
        new_folder(out, replaces=_foreign if force else None) as folder,
        ThreadPoolExecutor(max_workers=1) as aside,
    ):
        on_step("writing sub-models")
        sha256 = aside.submit(file_sha256, loaded.path)
        _write_submodels(folder, loaded, cut, plan, conversion, on_step)
        _write_tables(folder, plan)
        (folder / BOARDS_FILE).write_text(reaches_to_json(boards, plan), encoding="ascii")
        plan = replace(plan, model=replace(plan.model, sha256=sha256.result()))
        on_step("generating the driver")
        write_driver(folder, plan)
        on_step("packing")
        also = open_mpi_requirements() if wheels else []
        add_wheels = wheels_for(boards, wheels, also)
        packages = write_packages(folder, plan, archive=archive, add_wheels=add_wheels)
        if isinstance(loaded, KerasModel):
            on_step("converting the unsliced model")
            _write_converted(folder / CONVERTED, loaded, conversion)
        (folder / REFERENCE).symlink_to(model.resolve())
    packages = tuple(out / package.relative_to(folder) for package in packages)
    return Build(out, plan, packages, (*planned.warnings, *_warnings(loaded, cut)))


def _operators_without_engine(model: Model, cut: Partition, plan: Plan) -> Iterator[Mistake]:
    """Yield the ranks whose layers need operators of TensorFlow that their engine lacks.

    A delegate library may have them.
    """
    if not isinstance(model, TfliteModel):
        return
    flex = flex_operators(model.root, model.bodies)
    for placement in plan.ranks if flex else ():
        needed: dict[str, tuple[str, ...]] = {
            layer.name: flex[position]
            for segment in cut.segments
            if segment.rank == placement.rank
            for layer in segment.layers
            if (position := model.operator_of[layer.name]) in flex
        }
        if not needed or placement.engine == "null" or "delegate" in dict(placement.options):
            continue
        operators = list(dict.fromkeys(name for names in needed.values() for name in names))
        one = len(needed) == 1
        layers = f"{'layer' if one else 'layers'} {listed(list(needed))}"
        yield Mistake(
            f"{model.path}: {layers}",
            f"{'needs' if one else 'need'} TensorFlow's own operators, which LiteRT does not have: "
            + listed(operators),
            "convert the model without SELECT_TF_OPS",
        )


def _warnings(model: Model, cut: Partition) -> Iterator[str]:
    """Yield what works but could be better with another mapping."""
    yield from _quantised_warnings(cut) if isinstance(model, OnnxModel) else ()
    split = split_normalisations(cut) if isinstance(model, KerasModel) else ()
    if split:
        yield (
            f"cuts separate {listed(split)} from the layers before, into whose weights they would"
            " be merged: results differ slightly, and take a little longer"
        )


def _quantised_warnings(cut: Partition) -> Iterator[str]:
    """Yield where engines round otherwise than in the unsliced model, as they merge less."""
    if parted := parted_groups(cut):
        yield (
            f"cuts part {listed(parted)} from the layers with which onnxruntime merges them:"
            " results can differ from the unsliced model's by some steps of the quantisation;"
            " leave these layers out of the mapping (they then go with those), or cut elsewhere"
        )
    if averages := parted_signed_averages(cut):
        yield (
            f"int8 values cross cuts beside {listed(averages)}: on x86 onnxruntime computes such a"
            " layer as integers only if no cut is beside it, so results can differ by some steps of"
            " the quantisation; cut elsewhere, or quantise activations to uint8"
        )


def _foreign(folder: Path) -> str:
    """Return what shows that a folder is not, or not only, a build folder; empty: nothing."""
    try:
        with os.fdopen(open_ordinary(folder / "plan.json", "a plan"), "rb") as file:
            beginning = file.read(200)
    except (OSError, RankSliceError):
        return "has no plan.json"
    if f'"{FORMAT}"'.encode() not in beginning:
        return "has a plan.json that no build made"
    if living_runs(folder):
        return "a run goes on in it: wait for its end"
    foreign = sorted({path.name for path in folder.iterdir()} - OWN_ENTRIES)
    return f"also holds {listed(foreign)}: move it elsewhere" if foreign else ""


def _engines(model: Path) -> tuple[str, ...]:
    """Return the engines that run a model's sub-models, the usual one first."""
    suffix = model.suffix.lower().lstrip(".")
    submodels = "tflite" if suffix in KERAS_SUFFIXES else suffix
    return (REFERENCE_ENGINES.get(submodels, "onnxruntime"), "null")


def _place(
    mapping: LayerMapping, platform: Platform, share_cores: bool, engines: Sequence[str]
) -> Placements:
    """Return where the ranks run; refuse engines that do not run the model."""
    placements = place_ranks(mapping, platform, share_cores=share_cores, default_engine=engines[0])
    raise_mistakes(
        Mistake(
            f"{mapping.name}: {rank.key}",
            f"the platform gives the {rank.accelerator} the engine {quoted(rank.engine)}, which"
            + (" runs models of another format" if rank.engine in ENGINES else " is unknown"),
            f"expected {engines[0]} for this model",
        )
        for rank in placements.ranks
        if rank.engine not in engines
    )
    raise_mistakes(
        Mistake(
            f"{mapping.name}: {rank.key}",
            f"the platform gives the {rank.accelerator} no execution provider",
            "expected one beside the engine, such as `provider: CUDA`",
        )
        for rank in placements.ranks
        if rank.engine == "onnxruntime" and rank.accelerator != "cpu"
        if "provider" not in dict(rank.options)
    )
    return placements


def _write_submodels(
    folder: Path,
    model: Model,
    cut: Partition,
    plan: Plan,
    conversion: Conversion,
    on_step: Callable[[str], None],
) -> None:
    for number, (part, segment) in enumerate(zip(cut.segments, plan.segments, strict=True), 1):
        if isinstance(model, KerasModel):
            on_step(f"converting sub-model {number} of {len(cut.segments)}")
        path = folder / segment.file
        path.parent.mkdir(exist_ok=True)
        files = submodel_files(
            model, part.layers, part.inputs, part.outputs, name=path.name, conversion=conversion
        )
        write_pieces(files.model, path)
        if files.data is not None:
            write_pieces(files.data, path.with_name(f"{path.name}.data"))


def _write_converted(path: Path, model: KerasModel, conversion: Conversion) -> None:
    graph = model.graph
    brought = {tensor.name for tensor in graph.inputs}
    outputs = [tensor for tensor in graph.outputs if tensor.name not in brought]
    content = keras_submodel(model, graph.layers, graph.inputs, outputs, conversion, name=path.name)
    path.write_bytes(content)


def _write_tables(folder: Path, plan: Plan) -> None:
    texts = {
        "sender.json": table_to_json(sender_table(plan)),
        "receiver.json": table_to_json(receiver_table(plan)),
        "rankfile": rankfile(plan.ranks),
        "hostfile": hostfile(plan.ranks),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
