"""What ``docs/several-boards.md`` has a reader type for three virtual boards is typed here."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import printed

from boards import Boards
from rankslice.networks.keras_zoo import keras_file

pytestmark = pytest.mark.ci

RACK = {"count": 3, "disk_mb": 512}

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "several-boards.md"
DETECTION = ROOT / "docs" / "detection.md"
DOCUMENTED_RACK = "/run/rsb0/"


def scripts(page: Path = PAGE) -> list[str]:
    """Return a page's blocks of commands for virtual boards."""
    return re.findall(r"(?ms)^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"))


def typed(script: str, rack: Boards, folder: Path) -> str:
    """Return what a block prints, typed in a folder with the models that are shipped."""
    for name in ("models", "platforms"):
        shutil.copytree(ROOT / name, folder / name)
    script = script.replace(DOCUMENTED_RACK, f"{rack.names.folder}/")
    return printed(["bash", "-e", "-c", script], folder, COLUMNS="200")


def test_the_page_has_a_small_model_and_two_of_real_size() -> None:
    small, resnet50, mobilenetv2 = scripts()
    assert "models/digits.onnx" in small
    assert "zoo_model('resnet50')" in resnet50
    assert "keras_model('mobilenetv2')" in mobilenetv2


def test_a_small_model_runs_on_three_boards_as_the_page_says(rack: Boards, tmp_path: Path) -> None:
    shown = typed(scripts()[0], rack, tmp_path)
    assert "verify passed: 100 frames compared, bit-equal" in shown


def test_photographs_become_labelled_pictures_on_two_boards(rack: Boards, tmp_path: Path) -> None:
    (script,) = scripts(DETECTION)
    assert 3 == len(script.replace("\\\n", "").splitlines())
    assert "boxes on 6 images, in " in typed(script, rack, tmp_path)
    pictures = {path.name for path in (tmp_path / "labelled").iterdir()}
    photographs = {path.name for path in (ROOT / "models" / "photographs").iterdir()}
    assert {"coco.json"} == pictures - photographs
    assert set() == photographs - pictures


@pytest.mark.slow
def test_resnet_50_runs_on_three_boards_as_the_page_says(rack: Boards, tmp_path: Path) -> None:
    assert "verify passed: 20 frames compared" in typed(scripts()[1], rack, tmp_path)


@pytest.mark.slow
def test_mobilenet_v2_runs_on_three_boards_as_the_page_says(rack: Boards, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra: litert)")
    if not keras_file("mobilenetv2").exists() and find_spec("tensorflow") is None:
        pytest.skip("its file is made by TensorFlow, which is not installed (extra: keras)")
    assert "verify passed: 20 frames compared" in typed(scripts()[2], rack, tmp_path)
