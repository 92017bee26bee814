"""Images made into model inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from command_line import succeed
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tflite_models import model_file

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing, RunOptions, parse_options
from rankslice.backend.runtime.sources.image_input import Fit, image_input
from rankslice.backend.runtime.sources.image_source import (
    ImageSource,
    decoded,
    load_image,
    opened_image,
)
from rankslice.framework.reading.read_driver import read_driver
from rankslice.frontend.formats.tflite.reader import read_tflite

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
"""4 rows, 6 columns, RGB."""

RAW = Preprocessing(scale=(1.0,))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    Image.fromarray(PIXELS).save(path)
    return path


def load(path: Path, shape: tuple[int, ...], preprocessing: Preprocessing) -> NDArray[Any]:
    slot = np.full(shape, np.nan, np.float32)
    load_image(path, image_input(Tensor("x", "float32", shape), preprocessing), slot)
    return slot


CHW = PIXELS.transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("preprocessing", "expected"),
    [
        pytest.param(RAW, CHW, id="channels first"),
        pytest.param(Preprocessing("nhwc", scale=(1.0,)), PIXELS, id="channels last"),
        pytest.param(Preprocessing(), CHW * np.float32(1 / 255), id="from 0 to 1 as a rule"),
        pytest.param(
            Preprocessing(mean=(10.0,), scale=(0.5,)),
            (CHW - 10.0) * 0.5,
            id="the mean is subtracted before scaling",
        ),
        pytest.param(
            Preprocessing("nhwc", mean=(1.0, 2.0, 3.0), scale=(0.5, 0.25, 2.0)),
            (PIXELS - np.array((1.0, 2.0, 3.0))) * np.array((0.5, 0.25, 2.0)),
            id="a mean and a scale for each channel, last",
        ),
        pytest.param(
            Preprocessing(mean=(1.0, 2.0, 3.0), scale=(0.5, 0.25, 2.0)),
            ((PIXELS - np.array((1.0, 2.0, 3.0))) * np.array((0.5, 0.25, 2.0))).transpose(2, 0, 1),
            id="a mean and a scale for each channel, first",
        ),
        pytest.param(
            Preprocessing(size=(4, 6), scale=(1.0,)),
            CHW[:, 1:3, 2:4],
            id="the middle of what size gives",
        ),
    ],
)
def test_pixels_become_values_as_the_options_say(
    image: Path, preprocessing: Preprocessing, expected: NDArray[Any]
) -> None:
    values = load(image, (1, *expected.shape), preprocessing)
    np.testing.assert_array_equal(expected[np.newaxis].astype(np.float32), values)


NOISE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
"""40 rows, 60 columns, RGB."""


def torch_reference(pixels: NDArray[Any]) -> NDArray[Any]:
    """Return what the ONNX Model Zoo's description of ResNet makes of an image of its size."""
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return (pixels / 255 - mean) / deviation


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("torch", torch_reference(NOISE)),
        ("caffe", NOISE[:, :, ::-1] - np.array([103.939, 116.779, 123.68])),
        ("tf", NOISE / 127.5 - 1),
    ],
)
def test_presets_give_the_values_of_their_authors(
    tmp_path: Path, preset: str, expected: NDArray[Any]
) -> None:
    Image.fromarray(NOISE).save(tmp_path / "i.png")
    last = load(tmp_path / "i.png", (1, 40, 60, 3), Preprocessing("nhwc", preprocess=preset))
    np.testing.assert_allclose(expected, last[0], atol=1e-5, rtol=0)
    first = load(tmp_path / "i.png", (1, 3, 40, 60), Preprocessing(preprocess=preset))
    np.testing.assert_array_equal(last.transpose(0, 3, 1, 2), first)


def test_crop_scales_the_shorter_side_and_cuts_the_middle(tmp_path: Path) -> None:
    Image.fromarray(NOISE).save(tmp_path / "i.png")
    wanted = Preprocessing("nhwc", size=(20, 20), resize="crop", scale=(1.0,))
    expected = np.asarray(Image.fromarray(NOISE).resize((30, 20), Image.Resampling.BILINEAR))
    values = load(tmp_path / "i.png", (1, 16, 16, 3), wanted)
    np.testing.assert_array_equal(expected[2:18, 7:23], values[0])


def test_letterbox_keeps_proportions_and_pads_equally(tmp_path: Path) -> None:
    Image.fromarray(NOISE).save(tmp_path / "i.png")
    wanted = Preprocessing(
        "nhwc", resize="letterbox", pad=128, interpolation="bicubic", scale=(1.0,)
    )
    resized = np.asarray(Image.fromarray(NOISE).resize((33, 22), Image.Resampling.BICUBIC))
    values = load(tmp_path / "i.png", (1, 33, 33, 3), wanted)[0]
    np.testing.assert_array_equal(resized, values[5:27])
    assert {128.0} == {*values[:5].flat, *values[27:].flat}


def test_a_model_of_open_sizes_gets_images_in_proportion(tmp_path: Path) -> None:
    Image.fromarray(NOISE).save(tmp_path / "i.png")
    spec = Tensor("x", "float32", (1, 3, 80, 80), symbols=("", "", "h", "w"))
    takes = image_input(spec, Preprocessing(resize="letterbox"))
    assert Fit((40, 60), (40, 60)) == takes.fit((40, 60), "i.png")
    takes = image_input(spec, Preprocessing(size=(30, 30), resize="letterbox"))
    assert Fit((20, 30), (30, 30)) == takes.fit((40, 60), "i.png")
    assert (-5, 0) == takes.fit((40, 60), "i.png").corner


def test_options_override_those_of_a_preset_and_its_file(tmp_path: Path) -> None:
    file = tmp_path / "preset.json"
    values = {"mean": [1, 2, 3.5], "scale": 2, "size": "8x6", "channel_order": "bgr", "pad": None}
    file.write_text(json.dumps(values))
    given = Preprocessing("nhwc", mean=(9.0,), preprocess=str(file))
    expected = Preprocessing("nhwc", size=(8, 6), mean=(9.0,), scale=(2.0,), channel_order="bgr")
    assert expected == given.resolved() == given.resolved().resolved()
    options = RunOptions(preprocessing=given)
    assert expected == parse_options(options.to_arguments()).preprocessing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not one of torch, caffe, tf, and no JSON file that can be read"),
        ("[1]", "is not a JSON object; expected one with layout, size, mean"),
        ('{"stdd": 1}', "no option 'stdd'; expected layout"),
        ('{"preprocess": "tf"}', "no option 'preprocess'"),
        ('{"mean": "a"}', 'mean cannot be "a"'),
        ('{"scale": [NaN]}', "scale cannot be [NaN]"),
        ('{"size": [0, 5]}', "size cannot be [0, 5]"),
        ('{"pad": 256}', "pad cannot be 256"),
        ('{"layout": ["nchw"]}', 'layout cannot be ["nchw"]'),
        ('{"keep_size": 1}', "keep_size cannot be 1"),
        ("[" * 100_000, "no JSON file that can be read"),
    ],
)
def test_a_wrong_file_of_a_preset_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "preset.json").write_text(text)
    with pytest.raises(JobError) as error:
        Preprocessing(preprocess=str(tmp_path / "preset.json")).resolved()
    assert message in str(error.value)


def test_an_image_of_another_size_is_resized_to_the_model_input(tmp_path: Path) -> None:
    Image.new("RGB", (50, 30), (10, 20, 30)).save(tmp_path / "i.png")
    values = load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    np.testing.assert_array_equal(np.full((4, 6), 20), values[0, 1])


def test_a_model_of_one_channel_gets_grey_values(tmp_path: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    Image.fromarray(grey).save(tmp_path / "i.png")
    values = load(tmp_path / "i.png", (1, 1, 4, 6), RAW)
    np.testing.assert_array_equal(grey[np.newaxis, np.newaxis], values)


@pytest.mark.parametrize(("mode", "colour"), [("L", 7), ("RGBA", (7, 7, 7, 0))])
def test_grey_fills_all_three_channels_and_transparency_is_left_out(
    tmp_path: Path, mode: str, colour: int | tuple[int, ...]
) -> None:
    Image.new(mode, (6, 4), colour).save(tmp_path / "i.png")
    values = load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    np.testing.assert_array_equal(np.full((1, 3, 4, 6), 7), values)


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + b"\0" * 20])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(JobError, match=r"broken\.png: not an image that can be read"):
        load(tmp_path / "broken.png", (1, 3, 4, 6), RAW)


def test_an_image_that_was_cut_short_is_named(image: Path) -> None:
    image.write_bytes(image.read_bytes()[:50])
    with pytest.raises(JobError, match=r"image\.png: not an image that can be read"):
        load(image, (1, 3, 4, 6), RAW)


@pytest.mark.parametrize(
    ("preprocessing", "message"),
    [
        (Preprocessing(mean=(1.0, 2.0)), "mean has 2 values, expected 1 or 3"),
        (Preprocessing(scale=(1.0,) * 4), "scale has 4 values, expected 1 or 3"),
        (
            Preprocessing(size=(3, 6)),
            "images resized to 3x6 are smaller than the model input, 4x6",
        ),
        (
            Preprocessing(size=(8, 8), resize="letterbox"),
            "--size 8x8: --resize letterbox pads images to the model input, 4x6: leave --size out",
        ),
        (
            Preprocessing(pad=1),
            "--pad is given without --resize letterbox, which alone pads images",
        ),
        (
            Preprocessing("nhwc"),
            "model input 'x' of shape [1, 3, 4, 6] accepts no images in layout nhwc;"
            " expected one image of 1 or 3 channels",
        ),
    ],
)
def test_what_does_not_fit_the_model_is_told(
    image: Path, preprocessing: Preprocessing, message: str
) -> None:
    with pytest.raises(JobError) as error:
        load(image, (1, 3, 4, 6), preprocessing)
    assert message == str(error.value)


@pytest.mark.parametrize("shape", [(3, 4, 6), (2, 3, 4, 6), (1, 2, 4, 6), ()])
def test_a_model_input_that_is_no_single_image_takes_none(
    image: Path, shape: tuple[int, ...]
) -> None:
    with pytest.raises(JobError, match="accepts no images in layout nchw"):
        load(image, shape, RAW)


@pytest.mark.parametrize(
    ("shape", "symbols", "layout"),
    [
        ((1, 3, 4, 6), (), "nchw"),
        ((1, 4, 6, 3), (), "nhwc"),
        ((1, 4, 6, 1), (), "nhwc"),
        ((1, 3, 6, 3), (), "nchw"),
        ((1, 3, 6, 3), ("", "h", "w", ""), "nhwc"),
    ],
)
def test_the_layout_follows_from_the_place_of_the_channels(
    shape: tuple[int, ...], symbols: tuple[str, ...], layout: str
) -> None:
    takes = image_input(Tensor("x", "float32", shape, symbols=symbols), Preprocessing())
    assert layout == takes.preprocessing.layout


USUAL = Preprocessing()
RAMP = np.array([0, 1, 100, 127, 128, 200, 254, 255], np.uint8)
"""Grey values of a row."""


def fed(
    folder: Path,
    dtype: str,
    preprocessing: Preprocessing = USUAL,
    quantisation: tuple[float, ...] = (),
) -> list[float]:
    """Return what a model input of some type gets of RAMP."""
    Image.fromarray(RAMP[np.newaxis]).save(folder / "ramp.png")
    spec = Tensor("x", dtype, (1, 1, 1, 8), quantisation=quantisation)
    slot = np.zeros(spec.shape, dtype)
    load_image(folder / "ramp.png", image_input(spec, preprocessing), slot)
    values: list[float] = slot.reshape(-1).tolist()
    return values


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "int64", "uint64"])
def test_integers_get_pixels_as_they_are(tmp_path: Path, dtype: str) -> None:
    assert RAMP.tolist() == fed(tmp_path, dtype)


def test_int8_gets_pixels_less_128(tmp_path: Path) -> None:
    assert [-128, -127, -28, -1, 0, 72, 126, 127] == fed(tmp_path, "int8")


@pytest.mark.parametrize(
    ("dtype", "mean", "scale", "expected"),
    [
        ("int8", (), (1.0,), [0, 1, 100, 127, 127, 127, 127, 127]),
        ("uint8", (127.0,), (2.0,), [0, 0, 0, 0, 2, 146, 254, 255]),
        ("int8", (128.0,), (1.3,), [-128, -128, -36, -1, 0, 94, 127, 127]),
        ("uint8", (), (1 / 255,), [0, 0, 0, 0, 1, 1, 1, 1]),
        ("int64", (), (1e20,), [0, *[2**63 - 1] * 7]),
        ("uint64", (1.0,), (1e20,), [0, 0, *[2**64 - 1] * 6]),
    ],
)
def test_integers_are_rounded_and_limited_to_their_range(
    tmp_path: Path,
    dtype: str,
    mean: tuple[float, ...],
    scale: tuple[float, ...],
    expected: list[int],
) -> None:
    assert expected == fed(tmp_path, dtype, Preprocessing(mean=mean, scale=scale))


@pytest.mark.parametrize(
    ("dtype", "quantisation"),
    [
        ("uint8", (1 / 255, 0.0)),  # 0 to 1
        ("int8", (1 / 255, -128.0)),
        ("uint8", (1 / 128, 128.0)),  # -1 to 1
        ("int8", (1 / 127.5, -1.0)),
        ("int8", (1 / 128, 0.0)),
        ("uint8", (1.0, 0.0)),  # 0 to 255
        ("int8", (1.0, -128.0)),
    ],
)
def test_pixels_fill_a_quantised_input_that_covers_a_usual_range(
    tmp_path: Path, dtype: str, quantisation: tuple[float, ...]
) -> None:
    least = np.iinfo(dtype).min
    assert [pixel + least for pixel in RAMP.tolist()] == fed(
        tmp_path, dtype, quantisation=quantisation
    )


def test_int16_is_filled_as_int8_is(tmp_path: Path) -> None:
    values = fed(tmp_path, "int16", quantisation=(1 / 32768, 0.0))
    assert [257 * int(pixel) - 32768 for pixel in RAMP] == values


def test_other_quantised_inputs_get_the_quantised_value_of_the_float_input(tmp_path: Path) -> None:
    step, zero_point = 0.02, -20.0  # -2.16 to 2.94
    expected = np.rint(RAMP / 255 / step + zero_point)
    assert expected.tolist() == fed(tmp_path, "int8", quantisation=(step, zero_point))


def test_mean_and_scale_say_the_real_value_of_a_quantised_input(tmp_path: Path) -> None:
    step, zero_point = 1 / 128, 128.0
    asked = Preprocessing(mean=(127.5,), scale=(1 / 64,))
    real = (RAMP - np.float32(127.5)) / 64  # -2 to 2: beyond the input's -1 to 1
    expected = np.rint(real / step + zero_point).clip(0, 255)
    assert expected.tolist() == fed(tmp_path, "uint8", asked, (step, zero_point))


def test_a_quantised_model_gets_what_its_file_says(tmp_path: Path) -> None:
    options = ("--cuts", "3", "--share-cores", "--out", tmp_path / "out")
    succeed("build", model_file("cnn_int8"), *options)
    (spec,) = read_driver(tmp_path / "out" / "driver.py").inputs
    Image.fromarray(PIXELS).resize((16, 16)).save(tmp_path / "i.png")
    slots = {kind: np.zeros(spec.shape, kind) for kind in ("int8", "float32")}
    for kind, slot in slots.items():
        fitting = replace(spec, dtype=kind)
        load_image(tmp_path / "i.png", image_input(fitting, Preprocessing("nhwc")), slot)
    (quantisation,) = read_tflite(model_file("cnn_int8")).graph.quantised
    assert (0.0301, 5) == (round(quantisation.scale, 4), quantisation.zero_point)
    real = (slots["int8"].astype(np.float32) - quantisation.zero_point) * quantisation.scale
    np.testing.assert_allclose(slots["float32"], real, atol=quantisation.scale / 2)


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "uint4", "float8_e4m3fn", "complex64"])
def test_inputs_of_other_types_take_no_images(dtype: str) -> None:
    spec = Tensor("x", dtype, (1, 1, 1, 8))
    with pytest.raises(JobError, match=f"'x' is {dtype}; images feed floating point and integer"):
        image_input(spec, Preprocessing())


@pytest.mark.parametrize("suffix", ["png", "pgm"])
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_values_of_16_bits_keep_their_precision(
    tmp_path: Path, suffix: str, channels: int
) -> None:
    grey = np.arange(0, 65536, 2731, dtype=np.uint16).reshape(4, 6)
    path = tmp_path / f"deep.{suffix}"
    if suffix == "png":
        Image.fromarray(grey).save(path)
    else:
        path.write_bytes(b"P5 6 4 65535\n" + grey.astype(">u2").tobytes())
    values = load(path, (1, channels, 4, 6), Preprocessing())
    np.testing.assert_allclose(np.broadcast_to(grey / 65535, values.shape), values, atol=1e-6)


@pytest.mark.parametrize("mode", ["1", "LA", "P", "PA", "CMYK", "RGBA"])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_any_mode_are_read(tmp_path: Path, mode: str, channels: int) -> None:
    path = tmp_path / ("i.tiff" if mode in ("CMYK", "PA") else "i.png")
    Image.new("RGB", (6, 4), "white").convert("P" if mode == "PA" else "RGB").convert(mode).save(
        path
    )
    values = load(path, (1, channels, 4, 6), Preprocessing())
    np.testing.assert_allclose(np.ones(values.shape), values, atol=0.01)


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_turned_as_opencv_turns_them(
    tmp_path: Path, suffix: str, orientation: int
) -> None:
    path = tmp_path / f"o.{suffix}"
    image = Image.fromarray(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8)))
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(path, exif=exif, quality=95)
    expected = cv2.imread(str(path))
    assert expected is not None
    height, width, _ = expected.shape
    assert ((48, 32) if orientation > 4 else (32, 48)) == (height, width)
    values = load(path, (1, 3, height, width), RAW)
    # Decoders of JPEG differ in the last bits.
    np.testing.assert_allclose(expected[:, :, ::-1].transpose(2, 0, 1)[np.newaxis], values, atol=4)
    spec = Tensor("x", "float32", (1, 3, height, width))
    assert "" == ImageSource(RunOptions((str(path),)), [spec]).note()


@pytest.mark.parametrize("exif", [b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0no TIFF", b"\0"])
def test_an_orientation_that_cannot_be_read_turns_nothing(tmp_path: Path, exif: bytes) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "i.jpg", exif=exif, quality=100, dpi=(72, 72))
    values = load(tmp_path / "i.jpg", (1, 3, 4, 6), RAW)
    np.testing.assert_allclose(PIXELS.transpose(2, 0, 1)[np.newaxis], values, atol=12)


@pytest.mark.parametrize("name", ["exif", "transparency", "icc_profile"])
@pytest.mark.parametrize("after_pixels", [False, True])
def test_texts_with_the_names_of_settings_change_nothing(
    tmp_path: Path, name: str, after_pixels: bool
) -> None:
    texts = PngInfo()
    texts.add(b"iTXt", f"{name}\0\0\0\0\0II*".encode(), after_idat=after_pixels)
    Image.fromarray(PIXELS).save(tmp_path / "i.png", pnginfo=texts)
    values = load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    np.testing.assert_array_equal(PIXELS.transpose(2, 0, 1)[np.newaxis], values)
    assert (1, 1, 4, 6) == load(tmp_path / "i.png", (1, 1, 4, 6), RAW).shape
    with opened_image(tmp_path / "i.png") as opened:
        decoded(opened, 3).save(tmp_path / "o.png")


def test_hidden_files_of_a_folder_are_no_frames(image: Path) -> None:
    for name in ("._image.png", ".DS_Store", "Thumbs.db", ".png"):
        (image.parent / name).write_bytes(b"Mac OS X")
    spec = Tensor("x", "float32", (1, 3, 4, 6))
    source = ImageSource(RunOptions((str(image.parent),)), [spec])
    assert (1, "image.png") == (source.frames, source.label(0))
