"""Mistakes, and how they are shown."""

import pytest

from rankslice.framework.errors import MAX_LISTED, Mistake, RankSliceError, nearest, raise_mistakes


def lines_of(count: int) -> list[str]:
    with pytest.raises(RankSliceError) as caught:
        raise_mistakes(Mistake("file", f"mistake {number}") for number in range(count))
    return str(caught.value).splitlines()


def test_no_mistakes_raise_nothing() -> None:
    raise_mistakes([])


def test_all_mistakes_are_told_at_once() -> None:
    assert ["file: mistake 0", "file: mistake 1"] == lines_of(2)
    assert MAX_LISTED == len(lines_of(MAX_LISTED))


def test_of_very_many_mistakes_the_first_are_told_and_the_others_counted() -> None:
    lines = lines_of(MAX_LISTED + 1234)
    assert MAX_LISTED + 1 == len(lines)
    assert "... and 1234 more mistakes" == lines[-1]


def test_a_mistake_is_one_printable_line_whatever_stands_in_it() -> None:
    mistake = Mistake("a\nb\x1b[31m.json", "found '\u202e'", "x" * 10_000)
    assert str(mistake).isprintable()
    assert str(mistake).startswith("a\\nb\\x1b[31m.json: found '\\u202e'; xxx")
    assert 600 > len(str(mistake))


def test_the_nearest_name_may_differ_in_upper_and_lower_case() -> None:
    assert "did you mean 'MaxPool1'?" == nearest("MAXPOOL1", ["AvgPool1", "MaxPool1"])
    assert "did you mean 'conv1'?" == nearest("cnov1", ["relu1", "conv1"])
    assert "" == nearest("x", ["relu1", "conv1"])


def test_endless_names_are_not_compared() -> None:
    assert "" == nearest("x" * 1_000_000, ["x" * 999_999])
