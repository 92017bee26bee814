from __future__ import annotations

import pytest

from rankslice.framework.wording import bytes_text, count_text, digits, joules_text, share_text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0 B", 0),
        ("999 B", 999),
        ("1.00 kB", 1000),
        ("1.54 kB", 1536),
        ("12.3 kB", 12_345),
        ("999 kB", 999_499),
        ("1.00 MB", 999_500),
        ("10.0 MB", 9_995_000),
        ("100 MB", 99_950_000),
        ("4.29 GB", 2**32),
        ("1000 EB", 10**21),
    ],
)
def test_bytes_have_three_digits(text: str, number: int) -> None:
    assert text == bytes_text(number)


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("4.09 G", 4_089_184_256), ("1.00 k", 1000)]
)
def test_counts_have_three_digits(text: str, number: int) -> None:
    assert text == count_text(number)


def test_shares_are_in_per_cent() -> None:
    assert ("0.0 %", "53.5 %", "100.0 %") == tuple(map(share_text, (0, 0.5351, 1)))


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("0.0123", 0.01234), ("1.84", 1.8399), ("999", 999.4), ("1000", 999.6)],
)
def test_no_large_number_has_an_exponent(text: str, number: float) -> None:
    assert text == digits(number)
    assert ("2182 J", "999.6", "12346") == (joules_text(2182), digits(999.6, 4), digits(12345.6, 4))
