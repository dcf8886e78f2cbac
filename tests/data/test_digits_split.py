import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from meannet import config, data
from meannet.data import DataError, digits

KNOWN = load_digits()


def load(*, held_out: bool) -> data.Dataset:
    return data.load(config.Data(name="digits", held_out=held_out), say=pytest.fail)


def rows(cases: data.Cases) -> list[tuple[float, ...]]:
    return [(*case.tolist(), target) for case, target in zip(cases.inputs, cases.targets.tolist(), strict=True)]


def test_training_validation_and_test_cases_are_scikit_learns_digits_each_once():
    found, held_out = load(held_out=False), load(held_out=True)
    assert [len(c.targets) for c in (found.train, held_out.test, found.test)] == [300, 497, 1000]
    together = rows(found.train) + rows(held_out.test) + rows(found.test)
    expected = np.column_stack((KNOWN.data / 16, KNOWN.target)).tolist()  # sixteenths are exact in float32
    assert sorted(together) == sorted(tuple(row) for row in expected)


def test_choices_are_made_on_the_same_training_cases():
    found, held_out = load(held_out=False), load(held_out=True)
    assert torch.equal(found.train.inputs, held_out.train.inputs)
    assert torch.equal(found.train.targets, held_out.train.targets)


def test_inputs_are_float32_and_in_the_unit_interval():
    found = load(held_out=False)
    assert found.train.inputs.dtype == torch.float32 and found.train.targets.dtype == torch.int64
    assert found.train.inputs.shape == (300, 64) and found.image == (8, 8)
    assert found.test.inputs.min() == 0 and found.test.inputs.max() == 1


def test_the_split_is_the_one_that_was_fixed():
    assert load(held_out=False).digest == "bfa12fde69efd3183ee38c18ec160cf2c8921fc107e17b23f2a1e72e12672a20"
    assert load(held_out=True).digest == "1c1a359c1c642c701da8827ee64f5f43c38d512ac0c3884ca58c6ffcdfcacfad"


def test_every_class_is_in_every_part():
    found, held_out = load(held_out=False), load(held_out=True)
    for cases, least in ((found.train, 20), (held_out.test, 30), (found.test, 70)):
        assert torch.bincount(cases.targets, minlength=10).min() >= least


def test_other_digits_than_the_known_ones_are_refused(monkeypatch):
    changed = KNOWN.data.copy()
    changed[100, 20] += 1
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda **_: (changed, KNOWN.target))
    with pytest.raises(DataError, match="checksum"):
        load(held_out=False)
    [(path, ok, message)] = data.check("digits")
    assert path == digits.where() and not ok and "checksum" in message
