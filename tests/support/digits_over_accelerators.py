"""The digit classifier over CPU, GPU and NPU of one board, GPU and NPU being software."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from litert_engines import NPU_ENVIRONMENT, NPU_OPTIONS, gpu_environment

from rankslice.backend.runtime.options import RunOptions
from rankslice.measurement.summary import RunSummary
from rankslice.networks.digits import heldout_digits
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.build_options import Quantisation
from rankslice.session.run import prepare, run
from rankslice.session.verification.unsliced_outputs import unsliced_outputs

MODELS = Path(__file__).parents[2] / "models"

ON_ACCELERATORS = [
    ("XNNPACK", True),
    ("LiteRT's GPU accelerator", True),
    ("LiteRT's NPU accelerator", True),
]
"""What :attr:`Answers.accelerated` is if nothing falls back to the CPU."""

_KEYS = ("virtual_cpu0", "virtual_gpu", "virtual_npu")


@dataclass(frozen=True, slots=True)
class Answers:
    """How well the held-out digits were read."""

    sliced: float
    """Share that is right over CPU, GPU and NPU."""
    unsliced: float
    """Share that is right on the CPU alone."""
    same: float
    """Share with the same answer."""
    difference: float
    """The largest of any class's probability."""
    summary: RunSummary

    @property
    def accelerated(self) -> list[tuple[str, bool]]:
        """By whom each rank is accelerated, and whether in full."""
        records = [rank.accelerated for rank in self.summary.ranks]
        return [(record.by, record.is_full) for record in records if record]


def litert_board() -> dict[str, Any]:
    """Return a board on which LiteRT drives GPU and NPU."""
    return {
        "host": "localhost",
        "cores": 1,
        "gpu": {"engine": "litert", "environment": gpu_environment()},
        "npu": {"engine": "litert", "options": NPU_OPTIONS, "environment": NPU_ENVIRONMENT},
    }


def written_digits(folder: Path, *, channel: int) -> Path:
    """Write the held-out digits as frames with their channel at this axis; return the file."""
    images, _ = heldout_digits()
    frames = np.expand_dims(images.astype(np.float32) / np.float32(256), channel)
    np.savez(folder / "digits.npz", image=frames)
    return folder / "digits.npz"


def built_over_accelerators(
    model: Path,
    layers: Sequence[str | list[str]],
    folder: Path,
    quantisation: Quantisation | None = None,
    board: dict[str, Any] | None = None,
) -> Path:
    """Build the classifier over CPU, GPU and NPU; return the build folder.

    The arguments are those of :func:`answers_over_accelerators`.
    """
    platform, mapping = folder / "platform.yaml", folder / "mapping.json"
    platform.write_text(json.dumps({"boards": {"virtual": board or litert_board()}}))
    mapping.write_text(json.dumps(dict(zip(_KEYS, layers, strict=True))))
    options = BuildOptions(quantisation=quantisation or Quantisation(), share_cores=True)
    return build(model, mapping, str(platform), folder / "out", options).folder


def answers_over_accelerators(
    model: Path,
    layers: Sequence[str | list[str]],
    folder: Path,
    quantisation: Quantisation | None = None,
    board: dict[str, Any] | None = None,
) -> Answers:
    """Build, run on the held-out digits, and compare with the unsliced model on the CPU.

    Args:
        model: a file of the classifier.
        layers: those on the CPU, the GPU and the NPU.
        folder: for files.
        quantisation: of a Keras model.
        board: the one they are on, as in a platform file; :func:`litert_board` if not given.
    """
    built = built_over_accelerators(model, layers, folder, quantisation, board)
    digits = written_digits(folder, channel=1 if model.suffix == ".onnx" else 3)
    prepared = prepare(built, RunOptions(inputs=(str(digits),)))
    finished = run(prepared)
    _, labels = heldout_digits()
    count = len(labels)
    assert count == finished.summary.completed
    scores = finished.results.values(0).reshape(count, -1)
    sliced = scores.argmax(axis=1)
    converted = built / "model.tflite"
    reference = converted if converted.exists() else model
    outputs = unsliced_outputs(prepared, reference, range(count))
    # Frame after frame comes in the same memory.
    expected = np.stack([each.flatten() for (each,) in outputs])
    unsliced = expected.argmax(axis=1)
    return Answers(
        float(np.mean(sliced == labels)),
        float(np.mean(unsliced == labels)),
        float(np.mean(sliced == unsliced)),
        float(np.abs(scores - expected).max()),
        finished.summary,
    )
