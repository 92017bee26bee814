"""NVIDIA's clients for both protocols work with the server as they are."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from PIL import Image
from served import Doubling, Served, served
from tritonclient.utils import InferenceServerException

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing
from rankslice.backend.runtime.sources.image_input import image_input
from rankslice.backend.runtime.sources.image_source import load_image

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CLIENTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}


@pytest.fixture(scope="module")
def pipelines() -> tuple[Doubling, ...]:
    dtypes = {"bool": "BOOL", "uint8": "UINT8", "int64": "INT64", "float16": "FP16"}
    return (
        Doubling(),
        Doubling("open", (Tensor("x", "float32", (4, 3), ("n", "")),)),
        *(Doubling(dtype, (Tensor("x", dtype, (2, 2)),)) for dtype in dtypes),
    )


@pytest.fixture(scope="module")
def server(pipelines: tuple[Doubling, ...]) -> Iterator[Served]:
    with served(*pipelines) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, server: Served) -> Iterator[Any]:
    kind = request.param
    made = CLIENTS[kind].InferenceServerClient(getattr(server, kind))
    made.kind = CLIENTS[kind]
    yield made
    made.close()


def asked(client: Any, values: Any, datatype: str = "FP32", **how: Any) -> list[Any]:
    tensor = client.kind.InferInput("x", list(values.shape), datatype)
    tensor.set_data_from_numpy(values, **how)
    return [tensor]


def test_a_client_finds_the_server_and_its_models_ready(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert client.is_model_ready("double", "1")


def test_a_client_reads_what_a_model_takes_and_gives(client: Any) -> None:
    metadata = client.get_model_metadata("open")
    record = metadata if isinstance(metadata, dict) else {"inputs": [metadata.inputs[0]]}
    (tensor,) = record["inputs"]
    get = tensor.get if isinstance(tensor, dict) else lambda name: getattr(tensor, name)
    assert ("x", "FP32", [-1, 3]) == (get("name"), get("datatype"), [*map(int, get("shape"))])
    server = client.get_server_metadata()
    assert "rankslice" == (server["name"] if isinstance(server, dict) else server.name)


def test_a_client_gets_results(client: Any) -> None:
    answer = client.infer("double", asked(client, X), request_id="7", model_version="1")
    assert (X + X).tobytes() == answer.as_numpy("twice_x").tobytes()
    response = answer.get_response()
    assert "7" == (response["id"] if isinstance(response, dict) else response.id)


def test_a_client_gives_sizes_that_change(client: Any) -> None:
    for rows in (4, 1, 0):
        values = np.ones((rows, 3), np.float32)
        answer = client.infer("open", asked(client, values)).as_numpy("twice_x")
        assert (rows, 3) == answer.shape


@pytest.mark.parametrize(
    ("dtype", "datatype"),
    [("bool", "BOOL"), ("uint8", "UINT8"), ("int64", "INT64"), ("float16", "FP16")],
)
def test_values_of_each_type_arrive_bit_by_bit(client: Any, dtype: str, datatype: str) -> None:
    values = np.array([[0, 1], [1, 100]]).astype(dtype)
    answer = client.infer(dtype, asked(client, values, datatype)).as_numpy("twice_x")
    assert (values if dtype == "bool" else values + values).tobytes() == answer.tobytes()


def test_json_is_a_form_of_values_too(server: Served) -> None:
    client = tritonclient.http.InferenceServerClient(server.http)
    client.kind = tritonclient.http
    output = tritonclient.http.InferRequestedOutput("twice_x", binary_data=False)
    tensors = asked(client, X, binary_data=False)
    answer = client.infer("double", tensors, outputs=[output])
    assert (X + X).tobytes() == answer.as_numpy("twice_x").tobytes()
    assert "data" in answer.get_response()["outputs"][0]
    client.close()


@pytest.mark.parametrize(
    ("model", "shape", "datatype", "message"),
    [
        ("none", (2, 3), "FP32", "no model 'none'"),
        ("double", (3, 2), "FP32", "dimension 0 is 3, expected 2"),
        ("double", (2, 3), "FP64", "datatype is 'FP64', expected FP32"),
        ("open", (5, 3), "FP32", r"expected at most \[4, 3\]"),
    ],
)
def test_a_wrong_request_is_refused_and_says_why(
    client: Any, model: str, shape: tuple[int, ...], datatype: str, message: str
) -> None:
    dtype = np.float64 if datatype == "FP64" else np.float32
    with pytest.raises(InferenceServerException, match=message):
        client.infer(model, asked(client, np.zeros(shape, dtype), datatype))


def test_eight_clients_of_each_kind_get_their_own_results(server: Served) -> None:
    def ask(number: int) -> bool:
        kind = (tritonclient.http, tritonclient.grpc)[number % 2]
        address = (server.http, server.grpc)[number % 2]
        client = kind.InferenceServerClient(address)
        client.kind = kind
        values = X + number
        answers = [client.infer("double", asked(client, values)) for _ in range(5)]
        client.close()
        return all((values + values == answer.as_numpy("twice_x")).all() for answer in answers)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(16)))


PHOTO = Tensor("photo", "float32", (1, 3, 8, 8))
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 10, 3), np.uint8)


def encoded(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def photographs() -> Iterator[Served]:
    images = image_input(PHOTO, Preprocessing(preprocess="caffe"))
    with served(Doubling("photo", (PHOTO,), images=images)) as running:
        yield running


def posted(server: Served, model: str, body: bytes) -> tuple[int, Any]:
    """Return status and answer of an image that is posted over HTTP."""
    connection = http.client.HTTPConnection(server.http)
    headers = {"Content-Type": "image/png"}
    connection.request("POST", f"/v2/models/{model}/infer", body, headers)
    answer = connection.getresponse()
    result = answer.status, json.loads(answer.read())
    connection.close()
    return result


def test_image_files_are_preprocessed_as_a_run_does(photographs: Served, tmp_path: Path) -> None:
    (tmp_path / "i.png").write_bytes(encoded(PIXELS))
    slot = np.empty(PHOTO.shape, np.float32)
    load_image(tmp_path / "i.png", image_input(PHOTO, Preprocessing(preprocess="caffe")), slot)
    status, answer = posted(photographs, "photo", encoded(PIXELS))
    assert 200 == status
    values = np.array(answer["outputs"][0]["data"], np.float32).reshape(slot.shape)
    np.testing.assert_array_equal(slot + slot, values)
    client = tritonclient.grpc.InferenceServerClient(photographs.grpc)
    tensor = tritonclient.grpc.InferInput("photo", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([encoded(PIXELS)], object))
    values = client.infer("photo", [tensor]).as_numpy("twice_photo")
    np.testing.assert_array_equal(slot + slot, values)
    client.close()


def test_what_is_no_image_file_is_refused(photographs: Served, server: Served) -> None:
    for body, message in (
        (b"no image", "image: not an image that can be read"),
        (encoded(PIXELS)[:60], "image: not an image that can be read"),
        (encoded(np.zeros((8193, 8193), np.uint8)), "the image has more than 67108864 pixels"),
    ):
        status, answer = posted(photographs, "photo", body)
        assert (400, True) == (status, message in answer["error"]), answer
    status, answer = posted(photographs, "photo", bytes((16 << 20) + 1))
    assert 413 == status
    assert (415, {"error": "model double takes no images"}) == posted(server, "double", b"")
    client = tritonclient.grpc.InferenceServerClient(photographs.grpc)
    for files in ([], [b"a", b"b"]):
        tensor = tritonclient.grpc.InferInput("photo", [len(files)], "BYTES")
        tensor.set_data_from_numpy(np.array(files, object))
        with pytest.raises(InferenceServerException, match=r"one (image )?file"):
            client.infer("photo", [tensor])
    client.close()
