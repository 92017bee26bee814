from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tflite_models import model_file, written

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.tflite.checks import reference_mistakes
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, read_tables
from rankslice.frontend.partition.partition import partition

VICTIMS = (
    *("cnn_int8", "control_flow", "ethos_u", "hash_table"),
    *("open_dense", "open_kinds", "outside", "sparse"),
)


@pytest.fixture(autouse=True, scope="module")
def no_engine():
    """Leave LiteRT out: each damaged model of open sizes would take a process to ask it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ai_edge_litert", None)
        yield


WORDS = st.sampled_from([0, 1, 2, 4, 8, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFFC])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw a model file with a few words, bytes or pieces of it changed."""
    content = bytearray(model_file(draw(st.sampled_from(VICTIMS))).read_bytes())
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, len(content) - 8))
        kind = draw(st.sampled_from(("word", "half", "byte", "near", "cut", "copy")))
        if kind == "word":
            struct.pack_into("<I", content, place & ~3, draw(WORDS))
        elif kind == "half":
            struct.pack_into("<H", content, place & ~1, draw(WORDS) & 0xFFFF)
        elif kind == "byte":
            content[place] = draw(st.integers(0, 255))
        elif kind == "near":
            word = struct.unpack_from("<I", content, place & ~3)[0]
            struct.pack_into(
                "<I", content, place & ~3, (word + draw(st.integers(-9, 9))) & 0xFFFFFFFF
            )
        elif kind == "cut" and place > 64:
            del content[place:]
        else:
            end = draw(st.integers(place, min(place + 64, len(content))))
            content[place:end] = content[: end - place]
    return bytes(content)


def sliced_or_refused(content: bytes) -> str:
    """Read, partition and write what the bytes say; return the message if that is refused."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        try:
            model = read_tflite(path)
            layers = model.graph.layers
            ranks = {layer.name: 2 * n // len(layers) for n, layer in enumerate(layers)}
            for segment in partition(model.graph, ranks).segments:
                written(model, segment, Path(folder) / "part.tflite")
        except RankSliceError as error:
            return str(error)
    return ""


@given(damaged())
@settings(suppress_health_check=[HealthCheck.data_too_large])
def test_a_damaged_model_is_sliced_or_refused_with_a_message(content):
    sliced_or_refused(content)


@pytest.mark.slow
@given(damaged())
@settings(max_examples=5_000, deadline=None)
def test_many_damaged_models_are_sliced_or_refused_with_a_message(content):
    sliced_or_refused(content)


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(content):
    message = sliced_or_refused(content)
    assert "expected a .tflite model file" in message or "not the file itself" in message


@given(st.binary(min_size=8, max_size=400))
def test_random_bytes_with_the_right_identifier_are_refused(content):
    assert sliced_or_refused(content[:4] + b"TFL3" + content[8:])


@pytest.mark.parametrize("name", VICTIMS)
def test_a_model_that_is_cut_off_anywhere_is_refused(name):
    content = model_file(name).read_bytes()
    for end in range(0, len(content) - 64, len(content) // 25):
        assert sliced_or_refused(content[:end])


def test_another_kind_of_flatbuffer_is_refused():
    content = bytearray(model_file("cnn_int8").read_bytes())
    content[4:8] = b"TFL2"
    assert "identifier is b'TFL2', not b'TFL3'" in sliced_or_refused(bytes(content))


def test_a_list_longer_than_the_file_is_refused_at_once():
    # A Model whose list of operator codes (field 1) claims four thousand million entries.
    vtable = struct.pack("<4H", 8, 8, 0, 4)
    content = struct.pack("<I4s", 16, b"TFL3") + vtable
    content += struct.pack("<iI", 8, 4) + struct.pack("<I", 0xFFFFFFF0)
    assert "a list of 4294967280 tables" in sliced_or_refused(content)


@pytest.mark.parametrize("number", [-2, -65514, 1])
def test_an_operator_that_names_no_tensor_of_its_subgraph_is_refused(number):
    operator = Table("Operator", {"outputs": struct.pack("<2i", -1, number)})
    subgraph = Table("SubGraph", {"tensors": (Table("Tensor", {}),), "operators": (operator,)})
    tables = {"subgraphs": (subgraph,), "operator_codes": (Table("OperatorCode", {}),)}
    model = Table("Model", {**tables, "buffers": (Table("Buffer", {}),)})
    (mistake,) = reference_mistakes("model.tflite", model)
    assert f"Operator.outputs names tensor {number}, which cannot be" in str(mistake)


def bomb(width: int) -> bytes:
    """Return a model whose lists all lead to the same next list: ``width`` ** 3 tables in 1 kB."""
    vtable = struct.pack("<6H", 12, 8, 0, 0, 4, 0)  # Model: subgraphs (field 2)
    head = struct.pack("<I4s", 20, b"TFL3") + vtable
    model = struct.pack("<iI", 12, 4)
    body = bytearray(head + model)

    def repeated(kind_vtable: bytes) -> None:
        # A list of `width` references to the one table that follows its description.
        start = len(body)
        body.extend(struct.pack("<I", width))
        target = start + 4 + 4 * width + len(kind_vtable)
        body.extend(b"".join(struct.pack("<I", target - (start + 4 + 4 * n)) for n in range(width)))
        body.extend(kind_vtable)
        body.extend(struct.pack("<iI", len(kind_vtable), 4))

    repeated(struct.pack("<4H", 8, 8, 4, 0))  # SubGraph: tensors (field 0)
    repeated(struct.pack("<8H", 16, 8, *(0,) * 4, 0, 0))  # Tensor: nothing
    return bytes(body)


def test_references_to_the_same_tables_over_and_over_take_little_memory(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(bomb(2000))
    read = (
        "import resource, sys; from pathlib import Path;"
        "from rankslice.frontend.formats.tflite.reader import read_tflite;"
        "resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20));"
        "read_tflite(Path(sys.argv[1]))"
    )
    ended = subprocess.run([sys.executable, "-c", read, path], capture_output=True, text=True)
    assert "RankSliceError" in ended.stderr
    assert "a list of 2000 tables" in ended.stderr


def test_a_field_of_a_newer_schema_is_refused():
    content = struct.pack("<I4s", 36, b"TFL3")
    content += struct.pack("<13H", 26, 8, *(0,) * 10, 4) + bytes(2)
    content += struct.pack("<iI", 28, 0)
    assert "has a field that is newer than this version of RankSlice" in sliced_or_refused(content)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(model_file("cnn_int8").read_bytes())
    with FlatFile(path) as file:
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(RankSliceError, match="the file ends early"):
            read_tables(file)


def test_a_folder_or_a_missing_file_is_told(tmp_path):
    with pytest.raises(RankSliceError, match="is a folder"):
        read_tflite(tmp_path)
    with pytest.raises(RankSliceError, match="no such file"):
        read_tflite(tmp_path / "missing.tflite")


def test_tables_without_values_have_defaults():
    assert (0, (), "") == (
        Table("Tensor", {}).number("buffer"),
        Table("Tensor", {}).numbers("shape"),
        Table("Tensor", {}).text("name"),
    )
