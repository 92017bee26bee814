"""``rankslice demo``: two networks sliced and run on this machine, with real digits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

import numpy as np
from rich.console import Console

from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import JSON, check_output, write_output
from rankslice.framework.wording import fixed_text
from rankslice.networks.digits import (
    digits_labels,
    digits_model,
    heldout_digits,
    write_digit_images,
)
from rankslice.networks.zoo import zoo_model
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.run import FinishedRun, prepare, run
from rankslice.session.verification.unsliced_outputs import unsliced_outputs
from rankslice.views.classes import classes_parts
from rankslice.views.content import Table
from rankslice.views.plan_text import build_parts
from rankslice.views.run_text import run_parts
from rankslice.views.terminal import MAX_LINE, print_line, show

_DIGITS_SCALE = (1 / 256,)
_RESNET_FRAMES = 80

OnStep = Callable[[str], None]


def demo(console: Console, talk: Console, folder: Path | None = None) -> None:
    """Slice a digit classifier over three ranks and ResNet-50 over two, run and compare them.

    Raises:
        RankSliceError: a job failed, or slicing changed a result.
    """
    with ExitStack() as stack:
        place = folder or stack.enter_context(temporary_folder()).path
        _make(place)
        status = stack.enter_context(talk.status("starting"))
        _show_digits(place, console, status.update)
        _show_resnet50(place, console, status.update)
    if folder is not None:
        print_line(console, f"everything is in {folder!s}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"is not a folder and cannot be created: {error.strerror}"
        raise RankSliceError(Mistake(str(folder), problem, "choose another --folder")) from None


def _show_digits(folder: Path, console: Console, on_step: OnStep) -> None:
    console.rule("handwritten digits on three ranks")
    _, labels = heldout_digits()
    on_step("slicing the digit classifier")
    images = folder / "digit-images"
    write_digit_images(images, len(labels))
    mapping = _on_cores(folder, "digits-three-ranks.json", [(0,), (1,), (2,)])
    built = build(
        digits_model(),
        mapping,
        "local",
        folder / "digits",
        BuildOptions(share_cores=True, force=True),
    )
    show(console, *build_parts(built), max_cell=None)

    on_step(f"classifying {len(labels)} held-out digits")
    options = RunOptions(inputs=(str(images),), preprocessing=Preprocessing(scale=_DIGITS_SCALE))
    prepared = prepare(built.folder, options)
    finished = _verified(run(prepared, verify=True))
    show(console, *classes_parts(finished, digits_labels(), 2, 5), max_cell=MAX_LINE)
    show(console, *run_parts(finished.summary))

    sliced = finished.results.values(0).reshape(len(labels), -1).argmax(axis=1)
    reference = unsliced_outputs(prepared, digits_model(), range(len(labels)))
    unsliced = np.array([int(outputs[0].argmax()) for outputs in reference])
    print_line(
        console,
        f"accuracy on {len(labels)} held-out digits: sliced {np.mean(sliced == labels):.2%},"
        f" unsliced {np.mean(unsliced == labels):.2%};"
        f" {np.sum(sliced != unsliced)} answers differ\n",
    )


def _show_resnet50(folder: Path, console: Console, on_step: OnStep) -> None:
    console.rule("ResNet-50 on two ranks")
    on_step("making ResNet-50 with calibrated weights (once)")
    model = zoo_model("resnet50")
    everything = ["n0..n175"]
    cases = {
        "unsliced, one thread": _write_mapping(folder, "resnet50-1", [((0,), everything)]),
        "unsliced, two threads": _write_mapping(folder, "resnet50-2", [((0, 1), everything)]),
        "sliced over two ranks": _on_cores(folder, "resnet50-two-ranks.json", [(0,), (1,)]),
    }
    rows = []
    for name, mapping in cases.items():
        on_step(f"running ResNet-50 {name}")
        out = folder / mapping.stem
        built = build(model, mapping, "local", out, BuildOptions(share_cores=True, force=True))
        prepared = prepare(built.folder, RunOptions(frames=_RESNET_FRAMES))
        finished = _verified(run(prepared, verify=True))
        summary = finished.summary
        rows.append(
            (
                name,
                fixed_text(summary.throughput_fps or 0, 1),
                f"{summary.latency_ms['p50']:.1f} ms",
                f"{max(rank.memory_mb for rank in summary.ranks):.0f} MB",
            )
        )
    show(console, *run_parts(finished.summary))
    head = ("ResNet-50", "frames/s", "latency p50", "most memory of a rank")
    show(console, Table("", head, tuple(rows)))


def _verified(finished: FinishedRun) -> FinishedRun:
    verdict = finished.summary.verify
    if verdict is not None and not verdict.passed:
        raise RankSliceError(f"verify: {verdict.complaint}")
    return finished


def _on_cores(folder: Path, shipped: str, cores: Sequence[tuple[int, ...]]) -> Path:
    layers = json.loads((files("rankslice") / "mappings" / shipped).read_text()).values()
    name = Path(shipped).stem
    return _write_mapping(folder, name, list(zip(cores, layers, strict=True)))


def _write_mapping(
    folder: Path, name: str, ranks: Sequence[tuple[tuple[int, ...], list[str]]]
) -> Path:
    """Write a mapping; core i is the i-th that this process may use, round and round."""
    usable = sorted(os.sched_getaffinity(0))
    mapping: dict[str, list[str]] = {}
    for cores, layers in ranks:
        chosen = sorted({usable[core % len(usable)] for core in cores})
        key = f"local_cpu{','.join(map(str, chosen))}"
        same = sum(other == key or other.startswith(f"{key}.") for other in mapping)
        mapping[f"{key}.{same + 1}" if same else key] = layers
    path = folder / f"{name}.json"
    check_output(path, "--folder", JSON)
    write_output(path, json.dumps(mapping, indent=1) + "\n", "--folder")
    return path
