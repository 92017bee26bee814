"""How often int8 slices of Keras's networks give the float network's answer.

Slices of a Keras model are quantised one by one, each with scales of its own, so they do not give
the bits of the unsliced int8 model. What counts is the answer: the class with the largest score.
The networks are classifiers of parts of photographs (``keras_classifiers.py``), the
images held out. Next to each share stands that of the unsliced int8 model, and the share of images
whose best class leads over the second, in float32, by more than what quantising changes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from keras_classifiers import classifier_frames, keras_classifier
from numpy.typing import NDArray
from timing import console, machine, print_table

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.platform import Platform
from rankslice.frontend.formats.keras.reader import read_keras
from rankslice.frontend.formats.keras.tensorflow import load_keras
from rankslice.networks.keras_zoo import keras_names
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.build_options import Quantisation
from rankslice.session.building.cut_mapping import mapping_of_cuts
from rankslice.session.building.planning import MakeMapping
from rankslice.session.run import prepare, run
from rankslice.session.verification.unsliced_outputs import unsliced_outputs

Scores = NDArray[np.floating[Any]]
"""[images, classes]"""

REPRESENTATIVE, HELD_OUT = 24, 120
"""Frames for calibration, of those to which the network was fitted; and images to compare on."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What becomes of a network's answers in int8, as shares of the held-out images."""

    network: str
    slices: str
    right: float
    """Told by the unsliced float32 model."""
    whole: float
    """With the same answer by the unsliced int8 model."""
    sliced: float
    """With the same answer by the int8 slices."""
    same: float
    """With the same answer by the int8 slices as by the unsliced int8 model."""
    clear: float
    """With a lead, in float32, above the noise of quantising: the root mean square, over all images
    and classes, of how much the best class's lead differs in the unsliced int8 model."""


def shares(
    network: str,
    slices: str,
    labels: NDArray[np.int64],
    exact: Scores,
    whole: Scores,
    sliced: Scores,
) -> Shares:
    """Return the shares for scores of float32, of int8 unsliced, and of int8 slices."""
    answers = exact.argmax(axis=1)
    leads, quantised = (_leads(scores, answers) for scores in (exact, whole))
    noise = np.sqrt(np.mean((quantised - leads) ** 2))
    return Shares(
        network,
        slices,
        right=float(np.mean(answers == labels)),
        whole=float(np.mean(whole.argmax(axis=1) == answers)),
        sliced=float(np.mean(sliced.argmax(axis=1) == answers)),
        same=float(np.mean(sliced.argmax(axis=1) == whole.argmax(axis=1))),
        clear=float(np.mean(leads.min(axis=1) > noise)),
    )


def _leads(scores: Scores, answers: NDArray[np.intp]) -> Scores:
    """Return how much more an image's answer has than each other class, [images, classes - 1]."""
    best = np.take_along_axis(scores, answers[:, None], axis=1)
    others = np.arange(scores.shape[1]) != answers[:, None]
    return (best - scores)[others].reshape(len(scores), -1)


def taking_turns(cuts: Sequence[int], ranks: int) -> MakeMapping:
    """Return what gives the pieces between cuts to the ranks in turn."""
    cut = mapping_of_cuts(cuts, share_cores=True)

    def mapping(graph: Graph, platform: Platform) -> Mapping:
        pieces = cut(graph, platform).entries
        return Mapping(
            "in turn",
            tuple(
                MappingEntry(first.key, sum((piece.layers for piece in pieces[rank::ranks]), ()))
                for rank, first in enumerate(pieces[:ranks])
            ),
        )

    return mapping


def measured(name: str, ranks: int, folder: Path, *, interleaved: bool = False) -> Shares:
    """Build a network in int8 slices, run it by mpirun, and compare it with the unsliced models.

    Args:
        name: one of Keras's networks.
        ranks: how many slices, of equally many layers; they share this machine's cores.
        folder: for files.
        interleaved: a slice is two pieces, with pieces of all others in between.
    """
    model = keras_classifier(name)
    graph = read_keras(model).graph
    seen, _ = classifier_frames(name, REPRESENTATIVE, seed=0)
    frames, labels = classifier_frames(name, HELD_OUT, seed=1)
    for file, content in (("seen.npz", seen), ("held_out.npz", frames)):
        np.savez(folder / file, **{graph.inputs[0].name: content})
    pieces = 2 * ranks if interleaved else ranks
    cuts = [1 + number * len(graph.layers) // pieces for number in range(1, pieces)]
    built = build(
        *(model, taking_turns(cuts, ranks), "local", folder / "out"),
        BuildOptions(quantisation=Quantisation("int8", folder / "seen.npz"), share_cores=True),
    )
    prepared = prepare(built.folder, RunOptions(inputs=(str(folder / "held_out.npz"),)))
    sliced = run(prepared).results.values(0).reshape(HELD_OUT, -1)
    whole = [
        scores.ravel().copy()
        for (scores,) in unsliced_outputs(prepared, built.folder / "model.tflite", range(HELD_OUT))
    ]
    exact = load_keras(model).predict(frames, batch_size=12, verbose=0)
    slices = f"{ranks} interleaved" if interleaved else f"{ranks}"
    return shares(name, slices, labels, exact, np.array(whole), sliced)


def row(shares: Shares) -> list[str]:
    """Return the cells of a table's row."""
    cells = (shares.right, shares.whole, shares.sliced, shares.same, shares.clear)
    return [f"{shares.network}, {shares.slices}", *(f"{share:.1%}" for share in cells)]


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--network", choices=keras_names(), action="append", help="one or several (default: all)")
    add("--ranks", type=int, action="append", help="how many slices (default: 2, 3 and 5)")
    add("--interleaved", action="store_true", help="slices of two pieces each")
    add("--json", type=Path, help="file for the figures")
    add("--folder", type=Path, help="where to write (default: the folder for temporary files)")
    args = parser.parse_args()
    console.print(machine())
    agreements = []
    for name in args.network or keras_names():
        for ranks in args.ranks or (2, 3, 5):
            console.print(f"{name} in {ranks} slices", style="dim")
            with tempfile.TemporaryDirectory(prefix="rankslice-", dir=args.folder) as folder:
                agreements.append(measured(name, ranks, Path(folder), interleaved=args.interleaved))
    columns = (
        *("network, slices", "float32: right", "int8 whole as float32", "int8 slices as float32"),
        *("int8 slices as int8 whole", "lead above noise"),
    )
    print_table(f"the same answers, {HELD_OUT} held-out images", columns, map(row, agreements))
    if args.json:
        args.json.write_text(
            json.dumps([asdict(agreement) for agreement in agreements], indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
