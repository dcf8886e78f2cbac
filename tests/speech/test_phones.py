"""Phones, states and classes, against the symbol list of TIMIT's own documentation."""

from collections import Counter

import pytest

from meannet.speech import phones

# phoncode.doc of the corpus, in its order; closures are described there in the text.
DOCUMENTED = """
b d g p t k dx q jh ch s sh z zh f th v dh m n ng em en eng nx l r w y hh hv el iy ih eh ey ae aa aw ay ah ao oy ow uh
uw ux er ax ix axr ax-h pau epi h# bcl dcl gcl pcl tcl kcl"""


def test_the_61_symbols_are_those_of_the_corpus():
    assert sorted(DOCUMENTED.split()) == list(phones.PHONES) and len(phones.PHONES) == 61


def test_185_states_are_three_a_phone_and_five_of_silence():
    assert phones.N_STATES == 185 == len(phones.PHONE_OF_STATE) == len(phones.CLASS_OF_STATE)
    counts = Counter(phones.PHONES[number] for number in phones.PHONE_OF_STATE)
    assert counts.pop("h#") == 5 and set(counts.values()) == {3}
    assert all(phones.PHONE_OF_STATE[first] == number for number, first in enumerate(phones.FIRST))
    assert all(phones.PHONE_OF_STATE[first - 1] == number for number, first in enumerate(phones.FIRST[1:]))


def test_48_and_39_classes_are_those_of_lee_and_hon():
    assert len(set(phones.TO_48.values())) == 48 and len(phones.CLASSES) == 39
    together = Counter(phones.TO_39.values())
    # Their table of what is taken together within the 48, on the way to the 39.
    groups = [{"sil", "cl", "vcl", "epi"}, {"el", "l"}, {"en", "n"}, {"sh", "zh"}, {"ao", "aa"}, {"ih", "ix"}]
    groups += [{"ah", "ax"}]
    for group in groups:
        assert len({phones.TO_39[phone] for phone, one in phones.TO_48.items() if one in group}) == 1
    assert 48 - sum(len(group) - 1 for group in groups) == 39 and sum(together.values()) == 60
    silent = {"h#", "pau", "epi", "bcl", "dcl", "gcl", "pcl", "tcl", "kcl"}
    assert {phone for phone, one in phones.TO_39.items() if one == "sil"} == silent


def test_q_is_deleted_and_neighbours_of_one_class_stay_two():
    sequence = phones.numbers(["H#", "q", "ao", "tcl", "pau", "ux", "h#"])
    assert [phones.CLASSES[one] for one in phones.scored(sequence)] == ["sil", "aa", "sil", "sil", "uw", "sil"]


def test_a_symbol_that_is_none_is_named():
    with pytest.raises(ValueError, match=r"'xx' is none of TIMIT's 61"):
        phones.numbers(["h#", "xx"])
