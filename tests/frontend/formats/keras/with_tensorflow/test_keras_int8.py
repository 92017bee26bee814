"""Keras's own networks in int8 slices: how often they give the float network's answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankslice.networks.keras_zoo import keras_names

BENCHMARK = Path(__file__).parents[5] / "benchmarks" / "int8_agreement.py"

TOLERANCE = 0.065
"""How much less often than the unsliced int8 model slices may give the float network's answer.

Their roundings differ, and so do their answers where classes are close: on up to an eighth of 120
images (EfficientNetB0). If either is as likely to be the one that answers as in float, the
difference of their shares has a standard deviation of sqrt(1/8 / 120), 0.032. This is twice that.
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", keras_names())
def test_int8_slices_answer_as_in_float_nearly_as_often_as_the_int8_whole(name, tmp_path):
    figures = tmp_path / "figures.json"
    options = ("--network", name, "--ranks", "3", "--json", figures, "--folder", tmp_path)
    ended = subprocess.run(
        [sys.executable, BENCHMARK, *options], capture_output=True, text=True, check=False
    )
    assert 0 == ended.returncode, ended.stderr[-4000:]
    (found,) = json.loads(figures.read_text())
    print(found)
    assert found["right"] >= 0.7  # of twelve classes: its answers mean something
    assert found["whole"] >= 0.7
    assert found["sliced"] >= found["whole"] - TOLERANCE
