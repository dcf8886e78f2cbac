"""Phone errors against another way of counting them, and tuning on made-up speech."""

import tracemalloc
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from utterances import model_of_timit, padded

from meannet.speech import decoding, phones, scoring, tuning

SEQUENCES = st.lists(
    st.lists(st.sampled_from([*range(0, 61, 12), phones.NUMBER["q"]]), max_size=9), min_size=1, max_size=4
)


def fewest(said, heard):
    """The distance by recursion on the ends of both sequences."""

    @cache
    def between(a, b):
        if not a or not b:
            return a + b
        same = between(a - 1, b - 1) + (said[a - 1] != heard[b - 1])
        return min(same, between(a - 1, b) + 1, between(a, b - 1) + 1)

    return between(len(said), len(heard))


@settings(deadline=None, max_examples=100)
@given(SEQUENCES, SEQUENCES)
def test_errors_are_the_fewest_and_their_parts_add_up(references, hypotheses):
    count = min(len(references), len(hypotheses))
    references, hypotheses = [[0], *references[:count]], [[0], *hypotheses[:count]]
    found = scoring.score(references, hypotheses)
    folded = [(phones.scored(a), phones.scored(b)) for a, b in zip(references, hypotheses, strict=True)]
    assert found.errors == sum(fewest(a, b) for a, b in folded) == scoring.errors(references, hypotheses)
    assert found.phones == sum(len(a) for a, _ in folded)
    assert found.phones - found.deletions + found.insertions == sum(len(b) for _, b in folded)
    said, heard = (
        np.bincount([one for row in rows for one in row], minlength=39) for rows in zip(*folded, strict=True)
    )
    assert (found.confusions.sum(1) + found.deleted == said).all()
    assert (found.confusions.sum(0) + found.inserted == heard).all()


def test_a_known_case_by_hand():
    #          h#  sh iy q  tcl t  ae  m h#      as said: q goes, tcl and h# are silence
    #          h#  s  iy    kcl t  ae  m n h#    recognised: one substitution, one insertion
    said = phones.numbers(["h#", "sh", "iy", "q", "tcl", "t", "ae", "m", "h#"])
    heard = phones.numbers(["h#", "s", "iy", "kcl", "t", "ae", "m", "n", "pau"])
    found = scoring.score([said], [heard])
    assert (found.substitutions, found.deletions, found.insertions, found.phones) == (1, 0, 1, 8)
    assert found.rate == pytest.approx(25.0)
    assert found.confusions[phones.CLASSES.index("sh"), phones.CLASSES.index("s")] == 1
    assert found.inserted[phones.CLASSES.index("n")] == 1
    assert scoring.marked(said, heard) == [True, False, *[True] * 5, False, True]
    assert scoring.marked(said, said) == [True] * 9
    assert "silence counted" in str(found) and found.to_json()["scored"].startswith("39 classes, silence counted")


def test_references_without_a_phone_are_refused():
    with pytest.raises(ValueError, match="no phone to score against"):
        scoring.score([[phones.NUMBER["q"]]], [[0]])


def test_tuning_takes_the_values_with_the_fewest_errors_and_says_when_they_are_on_the_edge():
    model, labels, states, _ = model_of_timit(utterances=12)
    padded_out, counts = padded(states, sure=4.0)
    posteriors = torch.cat([row[:count] for row, count in zip(padded_out, counts, strict=True)])
    grid = {"scales": (0.1, 0.4, 1.0), "penalties": (-3.0, 0.0, 3.0)}
    found = tuning.tune(model, posteriors, counts, labels, **grid)
    assert len(found.tried) == 9
    for one in found.tried:
        changed = replace(model, scale=one.scale, penalty=one.penalty)
        rows = decoding.segments(decoding.decode(changed, padded_out, counts), counts)
        assert one.errors == scoring.score(labels, [[part.phone for part in row] for row in rows]).errors
    best = min(found.tried, key=lambda one: one.errors)
    assert [one.errors for one in found.tried if (one.scale, one.penalty) == (found.hmm.scale, found.hmm.penalty)] == [
        best.errors
    ]
    assert len({one.errors for one in found.tried}) > 3
    alone = tuning.tune(model, posteriors, counts, labels, scales=(0.4,), penalties=(0.0,))
    assert alone.on_the_edge and alone.to_json()["tried"] == [vars(alone.tried[0])]


def test_a_long_recording_among_short_ones_is_scored_in_the_memory_that_it_takes_alone():
    """A table of all of them at the length of the longest would hold a gigabyte."""
    draw = np.random.default_rng(0)
    said = [draw.integers(0, 61, length).tolist() for length in (2500, *[30] * 40)]
    heard = [[phone for phone in row if draw.random() > 0.1] for row in said]
    tracemalloc.start()
    try:
        counted = scoring.errors(said, heard)
        errors, most = scoring.score(said, heard).errors, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counted == errors and most < 2**26
