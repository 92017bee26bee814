"""What is found out about a SavedModel folder before TensorFlow is asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats import find_format, read_model
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.saved_model import folder as saved_model
from rankslice.session.inspecting.inspect import inspect_model


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    (tmp_path / "exported" / "variables").mkdir(parents=True)
    (tmp_path / "exported" / "saved_model.pb").write_bytes(b"\x08\x01")
    return tmp_path / "exported"


@pytest.fixture
def _with_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is there or not: these tests end before it is needed."""
    monkeypatch.setattr(saved_model, "find_spec", lambda name: name)


@pytest.mark.parametrize("read", [read_model, inspect_model])
def test_what_to_install_is_told_where_tensorflow_is_missing(
    read, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(RankSliceError, match=r"exported: needs TensorFlow .*'rankslice\[keras\]'"):
        read(exported)


def test_it_is_sliced_as_what_it_is_converted_to(exported: Path) -> None:
    kind = find_format(exported)
    assert kind is not None
    assert ("tflite", False) == (kind.name, kind.is_converted)


@pytest.mark.usefixtures("_with_tensorflow")
def test_links_in_it_are_not_followed(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (exported / "assets").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RankSliceError, match=r"exported/assets: is a link, and files elsewhere"):
        read_model(exported)


@pytest.mark.usefixtures("_with_tensorflow")
def test_pointers_of_git_lfs_are_told_from_files(exported: Path) -> None:
    (exported / "variables" / "variables.index").write_text("version https://git-lfs.github.com/")
    with pytest.raises(RankSliceError, match=r"variables\.index: is a Git LFS pointer"):
        read_model(exported)


def test_its_graph_alone_is_no_model(exported: Path) -> None:
    graph = exported / "saved_model.pb"
    with pytest.raises(
        RankSliceError, match=rf"part of a SavedModel.*; give its folder, {exported}"
    ):
        read_model(graph)


def test_other_models_have_no_signatures_to_choose(tmp_path: Path) -> None:
    with pytest.raises(RankSliceError, match=r"--signature: .*m\.onnx is no SavedModel folder"):
        read_model(tmp_path / "m.onnx", GivenSizes(signature="second"))


def test_a_folder_without_a_graph_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(
        RankSliceError, match=r"is a folder without saved_model\.pb; expected a mod"
    ):
        read_model(tmp_path)
