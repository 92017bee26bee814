"""SavedModel folders from the command line to the end: converted, built, run, compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import rankslice, succeed
from keras_networks import drawn

from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.hashing import file_sha256
from rankslice.frontend.formats import read_model
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.keras.tensorflow import quiet
from rankslice.frontend.formats.saved_model.folder import convert_saved_model


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Keras network with convolutions, normalisations and a skip connection, exported."""
    folder = tmp_path_factory.mktemp("models") / "residual"
    with quiet():
        drawn("residual").export(folder, verbose=False)
    return folder


def saved(folder: Path, **functions) -> Path:
    """Save a module with a signature for each function of a value, float32 [1, 4]."""
    import tensorflow as tf

    module, spec = tf.Module(), tf.TensorSpec((1, 4), tf.float32, name="x")
    module.weights = tf.Variable(tf.ones((4, 3)))
    signatures = {
        name: tf.function(
            lambda x, function=function: {"y": function(x @ module.weights)}
        ).get_concrete_function(spec)
        for name, function in functions.items()
    }
    with quiet():
        tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


def layers_of(folder: Path, signature: str = "") -> list[str]:
    graph = read_model(folder, GivenSizes(signature=signature)).graph
    return [layer.op for layer in graph.layers]


def test_a_network_is_built_run_and_compared_with_the_converted_one(residual, tmp_path):
    contents = []
    for name in ("one", "other"):
        out = tmp_path / name
        ended = succeed("build", residual, "--cuts", "2", "--share-cores", "--out", out)
        assert f"{residual} is converted to .tflite (signature 'serving_default', by" in ended.err
        files = sorted(path for path in out.rglob("*") if path.is_file())
        contents.append({path.relative_to(out): path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    plan = json.loads((out / "plan.json").read_text())
    assert ("residual.tflite", file_sha256(out / "model.tflite")) == (
        plan["model"]["name"],
        plan["model"]["sha256"],
    )
    shutil.rmtree(residual)  # the build folder has all that it needs
    ended = succeed("run", out, "--frames", "5", "--verify", "exact")
    assert "verify passed: 5 frames compared, bit-equal" in ended.out
    ended = succeed("inspect", out)
    assert ("", True) == (ended.err, "CONV_2D_0" in ended.out)


def test_a_signature_is_chosen(tmp_path):
    import tensorflow as tf

    folder = saved(tmp_path / "two", first=tf.nn.relu, second=tf.nn.tanh)
    for wanted, missing in (("", "serving_default"), ("third", "third")):
        with pytest.raises(
            RankSliceError, match=f"two: has no signature '{missing}'; choose --sig"
        ):
            layers_of(folder, wanted)
    assert ["FULLY_CONNECTED", "TANH"] == layers_of(folder, "second")
    ended = succeed("inspect", folder, "--signature", "first", "--summary")
    assert "signature 'first'" in ended.err


def test_a_profile_of_a_folder_belongs_to_its_builds(tmp_path):
    import tensorflow as tf

    folder = saved(tmp_path / "only", usual=lambda x: tf.nn.softmax(tf.nn.tanh(x)))
    profile = tmp_path / "times.json"
    succeed("profile", folder, "--seconds", "1", "--no-refine", "-o", profile)
    build = ("build", folder, "--cuts", "2", "--share-cores", "--out", tmp_path / "out")
    succeed(*build, "--profile", profile)


def test_a_folder_is_converted_once(tmp_path):
    import tensorflow as tf

    folder = saved(tmp_path / "only", usual=tf.nn.tanh)
    converted = convert_saved_model(folder)
    assert converted is convert_saved_model(folder)
    saved(folder, usual=tf.nn.relu)
    assert converted.file != convert_saved_model(folder).file


def test_what_would_run_code_or_write_files_does_not(tmp_path):
    import tensorflow as tf

    def called(value):
        (tmp_path / "called").touch()
        return value

    def written(value):
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "written"), "x")]):
            return tf.identity(value)

    def python(value):
        return tf.ensure_shape(tf.numpy_function(called, [value], tf.float32), (1, 3))

    for operator, function in (("WriteFile", written), ("PyFunc", python)):
        folder = saved(tmp_path / operator, serving_default=function)
        with pytest.raises(RankSliceError, match=f"reach other files, by '{operator}'"):
            read_model(folder)
    assert {"WriteFile", "PyFunc"} == {path.name for path in tmp_path.iterdir()}


def test_files_are_not_written_while_resources_are_prepared(tmp_path):
    """These functions run when TensorFlow loads the folder, whatever the signature calls."""
    import tensorflow as tf
    from tensorflow.python.trackable.resource import CapturableResource

    class Table(CapturableResource):
        def _create_resource(self):
            return tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)

        def _initialize(self):
            tf.io.write_file(str(tmp_path / "written"), "x")

    module = tf.Module()
    module.table = Table()

    @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32)])
    def model(x):
        size = tf.raw_ops.LookupTableSizeV2(table_handle=module.table.resource_handle)
        return x * tf.cast(size, tf.float32)

    with quiet():
        tf.saved_model.save(module, str(tmp_path / "table"), signatures=model)
    (tmp_path / "written").unlink(missing_ok=True)
    with pytest.raises(RankSliceError, match="may run code, or reach other files, by 'WriteFile'"):
        read_model(tmp_path / "table")
    assert not (tmp_path / "written").exists()


def test_operators_that_litert_lacks_are_named(tmp_path):
    import tensorflow as tf

    folder = saved(tmp_path / "m", usual=tf.math.special.fresnel_cos)
    with pytest.raises(RankSliceError, match="TensorFlow Lite has no operators for 'FresnelCos'"):
        read_model(folder)


@pytest.mark.parametrize(
    ("file", "length", "message"),
    [
        ("saved_model.pb", 1000, "its saved_model.pb is damaged, or something else; save the"),
        ("saved_model.pb", 0, "has no graph with the tag 'serve' alone"),
        ("variables/variables.index", 50, "TensorFlow cannot convert it: "),
        ("variables/variables.data-00000-of-00001", 20, "TensorFlow cannot convert it: "),
    ],
)
def test_damaged_folders_are_told(file, length, message, tmp_path):
    import tensorflow as tf

    folder = saved(tmp_path / "m", usual=tf.nn.tanh)
    (folder / file).write_bytes((folder / file).read_bytes()[:length])
    ended = rankslice("build", folder, "--cuts", "1", "--share-cores", "--out", tmp_path / "out")
    assert (1, 1) == (ended.code, len(ended.err.splitlines()))
    assert ended.err.startswith(f"error: {folder}: {message}")


def test_a_second_form_of_the_graph_is_refused(tmp_path):
    import tensorflow as tf

    folder = saved(tmp_path / "m", usual=tf.nn.tanh)
    (folder / "saved_model.cpb").write_bytes(b"")
    with pytest.raises(RankSliceError, match=r"has its graph twice: saved_model\.cpb and saved_mo"):
        read_model(folder)


def test_models_of_tensorflow_1_are_converted(tmp_path):
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session, quiet():
        image = v1.placeholder(tf.float32, (1, 4), "image")
        scores = tf.nn.softmax(tf.matmul(image, v1.get_variable("weights", (4, 3))))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "m"), {"i": image}, {"s": scores})
    assert ["FULLY_CONNECTED", "SOFTMAX"] == layers_of(tmp_path / "m")


def test_messages_name_the_folder_not_the_converted_file(tmp_path):
    import tensorflow as tf

    folder = saved(tmp_path / "m", usual=tf.nn.tanh)
    with pytest.raises(RankSliceError, match=rf"^{folder}: input 'z': the model has no such input"):
        read_model(folder, GivenSizes({"z": (1, 4)}))
