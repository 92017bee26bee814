import re

import pytest
from hypothesis import given, strategies as st

from rankslice.framework.files.file_names import safe_file_name


@pytest.mark.parametrize("name", ["edge01_cpu0-3.2", "edge04_arm0,1,10", "pi_gpu@4", "A_x86"])
def test_keys_of_the_usual_kind_stay_as_they_are(name):
    assert name == safe_file_name(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "%"),
        ("..", "%2E."),
        ("../x", "%2E.%2Fx"),
        ("-rf", "%2Drf"),
        ("a b", "a%20b"),
        ("50%", "50%25"),
        ("é", "%C3%A9"),
        ("a\0b\n", "a%00b%0A"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_other_characters_become_their_bytes(name, expected):
    assert expected == safe_file_name(name)


@given(st.text(max_size=400) | st.text("ab/%.", max_size=400))
def test_any_text_makes_a_short_plain_name_that_stays_in_its_folder(name):
    assert re.fullmatch("[A-Za-z0-9_,@%][A-Za-z0-9_,@%.-]{0,149}", safe_file_name(name))


@given(st.text("aA/%25-.", max_size=8), st.text("aA/%25-.", max_size=8))
def test_different_texts_make_different_names(first, second):
    assert (first == second) == (safe_file_name(first) == safe_file_name(second))


def test_long_texts_that_differ_at_the_end_make_different_names():
    assert safe_file_name("a" * 300) != safe_file_name("a" * 299 + "b")
