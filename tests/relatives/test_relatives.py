"""Relatives of dropout on few digits: against averages, samples and fits made by hand."""

import json
from collections import Counter

import numpy as np
import pytest
from sklearn.naive_bayes import BernoulliNB

from meannet import data
from meannet.config import Data
from meannet.data import Cases
from meannet.estimators import DropoutClassifier
from meannet.relatives import __main__ as command
from meannet.relatives import averaging, naive_bayes

TINY = {"hidden": (8,), "epochs": 3, "batch": 20}


@pytest.fixture(scope="module")
def digits():
    return data.load(Data(name="digits"), say=print)


def first(cases, count):
    return Cases(cases.inputs[:count], cases.targets[:count])


def test_averages_are_those_of_the_networks_probabilities(digits):
    train, test = first(digits.train, 60), first(digits.test, 50)
    rows = averaging.compare((train, test), (train, test), print, repeats=2, counts=(1, 3), **TINY)
    assert [(row["way"], row["networks"]) for row in rows] == [(way, n) for way in averaging.WAYS for n in (1, 3)]
    row = rows[1]  # three separate networks
    nets = [
        DropoutClassifier(dropout_hidden=0.0, lr=row["lr"], random_state=seed, **TINY).fit(train.inputs, train.targets)
        for seed in (3, 4, 5)
    ]
    whole = sum(net.predict_proba(test.inputs) for net in nets)
    assert row["errors"][1] == (whole.argmax(1) != test.targets.numpy()).sum()


def test_a_bootstrap_sample_has_as_many_cases_and_every_class():
    targets = np.array([0] * 30 + [1] * 2)
    for seed in range(20):
        counts = averaging.bootstrap(targets, seed)
        assert counts.sum() == 32 and counts[30:].sum() > 0
    drawn = np.concatenate([averaging.bootstrap(np.zeros(50, int), seed) for seed in range(200)])
    share = Counter(drawn.tolist())[0.0] / len(drawn)
    assert share == pytest.approx((1 - 1 / 50) ** 50, abs=0.015)  # of cases that are in no sample


def test_learning_curves_are_those_of_classifiers_fitted_by_hand(digits):
    rows = naive_bayes.compare(naive_bayes.of_digits(digits)._replace(sizes=(30,)), print, repeats=2)
    chosen = np.random.default_rng(1).permutation(300)[:30]
    on, answers = digits.train.inputs.numpy() >= 0.5, digits.train.targets.numpy()
    found = BernoulliNB().fit(on[chosen], answers[chosen]).predict(digits.test.inputs.numpy() >= 0.5)
    assert rows[0]["way"] == "naive Bayes" and rows[0]["errors"][1] == (found != digits.test.targets.numpy()).sum()
    assert [row["way"] for row in rows[1:]] == [*naive_bayes.LOGISTIC]


def test_the_command_writes_a_comparison_and_refuses_others(digits, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(averaging, "compare", lambda *cases_and_say: [{"way": "bagging"}])
    assert command.main(["averaging", "-o", str(tmp_path / "new")]) == 0
    found = json.loads((tmp_path / "new" / "averaging.json").read_text())
    assert found["rows"] == [{"way": "bagging"}] and found["data"][0]["digest"] == digits.digest and found["date"]
    (tmp_path / "a file").touch()
    assert command.main(["averaging", "-o", str(tmp_path / "a file")]) == 1
    assert capsys.readouterr().err.startswith("meannet.relatives: ")
    with pytest.raises(SystemExit):
        command.main(["boosting"])
    assert "invalid choice: 'boosting'" in capsys.readouterr().err
