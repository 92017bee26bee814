"""Images made into model inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from command_line import rankslice
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tflite_models import model_file

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.backend.runtime.sources.image_input import image_input
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


def test_layout_nchw_puts_channels_first(image: Path) -> None:
    np.testing.assert_array_equal(
        PIXELS.transpose(2, 0, 1)[np.newaxis], load(image, (1, 3, 4, 6), RAW)
    )


def test_layout_nhwc_puts_channels_last(image: Path) -> None:
    found = load(image, (1, 4, 6, 3), Preprocessing("nhwc", scale=(1.0,)))
    np.testing.assert_array_equal(PIXELS[np.newaxis], found)


def test_pixels_become_values_from_0_to_1_unless_told_otherwise(image: Path) -> None:
    found = load(image, (1, 3, 4, 6), Preprocessing())
    np.testing.assert_allclose(PIXELS.transpose(2, 0, 1)[np.newaxis] / 255, found, rtol=1e-6)


def test_the_mean_is_taken_away_before_scaling(image: Path) -> None:
    found = load(image, (1, 3, 4, 6), Preprocessing(mean=(10.0,), scale=(0.5,)))
    np.testing.assert_array_equal((PIXELS.transpose(2, 0, 1)[np.newaxis] - 10.0) * 0.5, found)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_each_channel_may_have_its_own_mean_and_scale(image: Path, layout: str) -> None:
    mean, scale = (1.0, 2.0, 3.0), (0.5, 0.25, 2.0)
    expected = (PIXELS - np.array(mean)) * np.array(scale)
    if layout == "nchw":
        expected = expected.transpose(2, 0, 1)
    shape = (1, *expected.shape)
    found = load(image, shape, Preprocessing(layout, mean=mean, scale=scale))
    np.testing.assert_array_equal(expected[np.newaxis], found)


def test_the_middle_is_cut_out_of_what_size_gives(image: Path) -> None:
    preprocessing = Preprocessing(size=(4, 6), scale=(1.0,))
    expected = PIXELS[1:3, 2:4].transpose(2, 0, 1)[np.newaxis]
    np.testing.assert_array_equal(expected, load(image, (1, 3, 2, 2), preprocessing))


def test_an_image_of_another_size_is_resized_to_the_model_input(tmp_path: Path) -> None:
    Image.new("RGB", (50, 30), (10, 20, 30)).save(tmp_path / "i.png")
    found = load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    np.testing.assert_array_equal(np.full((4, 6), 20), found[0, 1])


def test_a_model_of_one_channel_gets_grey_values(tmp_path: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    Image.fromarray(grey).save(tmp_path / "i.png")
    found = load(tmp_path / "i.png", (1, 1, 4, 6), RAW)
    np.testing.assert_array_equal(grey[np.newaxis, np.newaxis], found)


def test_a_grey_image_fills_all_three_channels(tmp_path: Path) -> None:
    Image.new("L", (6, 4), 7).save(tmp_path / "i.png")
    np.testing.assert_array_equal(
        np.full((1, 3, 4, 6), 7), load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    )


def test_transparency_is_left_out(tmp_path: Path) -> None:
    Image.new("RGBA", (6, 4), (7, 7, 7, 0)).save(tmp_path / "i.png")
    np.testing.assert_array_equal(
        np.full((1, 3, 4, 6), 7), load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    )


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
    found: list[float] = slot.reshape(-1).tolist()
    return found


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
    found = fed(tmp_path, "int16", quantisation=(1 / 32768, 0.0))
    assert [257 * int(pixel) - 32768 for pixel in RAMP] == found


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
    assert 0 == rankslice("build", model_file("cnn_int8"), *options).code
    (spec,) = read_driver(tmp_path / "out" / "driver.py").inputs
    Image.fromarray(PIXELS).resize((16, 16)).save(tmp_path / "i.png")
    slots = {kind: np.zeros(spec.shape, kind) for kind in ("int8", "float32")}
    for kind, slot in slots.items():
        fitting = replace(spec, dtype=kind)
        load_image(tmp_path / "i.png", image_input(fitting, Preprocessing("nhwc")), slot)
    (found,) = read_tflite(model_file("cnn_int8")).graph.quantised
    assert (0.0301, 5) == (round(found.scale, 4), found.zero_point)
    real = (slots["int8"].astype(np.float32) - found.zero_point) * found.scale
    np.testing.assert_allclose(slots["float32"], real, atol=found.scale / 2)


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
    found = load(path, (1, channels, 4, 6), Preprocessing())
    np.testing.assert_allclose(np.broadcast_to(grey / 65535, found.shape), found, atol=1e-6)


@pytest.mark.parametrize("mode", ["1", "LA", "P", "PA", "CMYK", "RGBA"])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_any_mode_are_read(tmp_path: Path, mode: str, channels: int) -> None:
    path = tmp_path / ("i.tiff" if mode in ("CMYK", "PA") else "i.png")
    Image.new("RGB", (6, 4), "white").convert("P" if mode == "PA" else "RGB").convert(mode).save(
        path
    )
    found = load(path, (1, channels, 4, 6), Preprocessing())
    np.testing.assert_allclose(np.ones(found.shape), found, atol=0.01)


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
    found = load(path, (1, 3, height, width), RAW)
    # Decoders of JPEG differ in the last bits.
    np.testing.assert_allclose(expected[:, :, ::-1].transpose(2, 0, 1)[np.newaxis], found, atol=4)
    spec = Tensor("x", "float32", (1, 3, height, width))
    assert "" == ImageSource(RunOptions((str(path),)), [spec]).note()


@pytest.mark.parametrize("exif", [b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0no TIFF", b"\0"])
def test_an_orientation_that_cannot_be_read_turns_nothing(tmp_path: Path, exif: bytes) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "i.jpg", exif=exif, quality=100, dpi=(72, 72))
    found = load(tmp_path / "i.jpg", (1, 3, 4, 6), RAW)
    np.testing.assert_allclose(PIXELS.transpose(2, 0, 1)[np.newaxis], found, atol=12)


@pytest.mark.parametrize("name", ["exif", "transparency", "icc_profile"])
@pytest.mark.parametrize("after_pixels", [False, True])
def test_texts_with_the_names_of_settings_change_nothing(
    tmp_path: Path, name: str, after_pixels: bool
) -> None:
    texts = PngInfo()
    texts.add(b"iTXt", f"{name}\0\0\0\0\0II*".encode(), after_idat=after_pixels)
    Image.fromarray(PIXELS).save(tmp_path / "i.png", pnginfo=texts)
    found = load(tmp_path / "i.png", (1, 3, 4, 6), RAW)
    np.testing.assert_array_equal(PIXELS.transpose(2, 0, 1)[np.newaxis], found)
    assert (1, 1, 4, 6) == load(tmp_path / "i.png", (1, 1, 4, 6), RAW).shape
    with opened_image(tmp_path / "i.png") as opened:
        decoded(opened, 3).save(tmp_path / "o.png")


def test_hidden_files_of_a_folder_are_no_frames(image: Path) -> None:
    for name in ("._image.png", ".DS_Store", "Thumbs.db", ".png"):
        (image.parent / name).write_bytes(b"Mac OS X")
    spec = Tensor("x", "float32", (1, 3, 4, 6))
    source = ImageSource(RunOptions((str(image.parent),)), [spec])
    assert (1, "image.png") == (source.frames, source.label(0))
