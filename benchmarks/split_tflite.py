"""How long it takes to slice a ``.tflite`` model of 100 MB into 8 sub-models, against copying it.

What is measured, and how, is that of ``front_end.py``. The model is Keras's ResNet-50, for which
TensorFlow is needed the first time.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from front_end import build_alone, measure, report, write_mapping
from timing import console, machine

from rankslice.networks.keras_zoo import keras_model

RANKS = 8


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", type=Path, help="another .tflite file")
    add("--rounds", type=int, default=5, help="rounds of measurements")
    add("--folder", type=Path, help="where to write (default: the folder for temporary files)")
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    given = parser.parse_args()
    model = given.model or keras_model("resnet50")
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-", dir=given.folder) as folder:
        place = Path(folder)
        mapping = write_mapping(model, place / "mapping.json", RANKS)
        rounds = measure(model, mapping, place, given.rounds, given.patience)
        alone = [build_alone(model, mapping, place / "out") for _ in range(3)]
    report(model.stem, model.stat().st_size, rounds, alone, RANKS)


if __name__ == "__main__":
    main()
