"""Baselines on a small collection in the form of LYRL2004, against scikit-learn fitted by hand on its raw words."""

import json
from dataclasses import replace

import pytest
from newswire import collection  # noqa: F401, a fixture
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from meannet import data, recipes
from meannet.config import Selection
from meannet.data import documents as cases_of
from meannet.relatives import linear

SELECTION = Selection(words=30, largest=0.4)


@pytest.fixture
def recipe(monkeypatch, collection):  # noqa: F811
    whole = recipes.get("reuters.c_2000_1000")
    small = replace(whole, data=replace(whole.data, selection=SELECTION))
    monkeypatch.setitem(recipes.RECIPES, "reuters.c_2000_1000", lambda: small)
    return "reuters.c_2000_1000", small, collection


def test_baselines_are_chosen_on_held_out_documents_and_judged_on_the_test_documents(recipe, tmp_path):
    name, small, documents = recipe
    assert linear.main([name, "-o", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / name / "baselines" / "linear.json").read_text())
    rows = {row["name"]: row for row in found["rows"]}
    assert set(rows) == {"logistic regression", "linear SVM", "naive Bayes"}
    judged = data.load(small.data, say=lambda line: None)
    assert found["data"]["digest"] == judged.digest and found["data"]["n_test"] == len(judged.test.targets)
    for row in rows.values():
        assert row["setting"] == min(row["held_out_errors"], key=lambda setting: row["held_out_errors"][setting])
        assert row["errors"] < 0.3 * row["n_test"]
    # Which documents are in which half follows from their order and the seed; counts are taken from their words anew.
    alone = {n: topic for n, topic in documents.alone().items() if topic in judged.classes}
    numbers = list(alone)
    order = cases_of.permutation(len(numbers), SELECTION.seed).tolist()
    half = len(numbers) // 2
    totals = documents.occurrences(alone)
    words = sorted(sorted(totals, key=lambda word: (-totals[word], word))[:30])
    model = CountVectorizer(vocabulary=words, analyzer=str.split)
    texts, labels = ([" ".join(documents.documents[numbers[k]][1]) for k in order], [alone[numbers[k]] for k in order])
    counts = model.transform(texts)
    bayes = MultinomialNB(alpha=float(rows["naive Bayes"]["setting"].split()[1])).fit(counts[:half], labels[:half])
    assert rows["naive Bayes"]["errors"] == (bayes.predict(counts[half:]) != labels[half:]).sum()


def test_recipes_without_documents_are_refused(capsys):
    with pytest.raises(SystemExit):
        linear.main(["digits"])
    assert "digits is not about documents" in capsys.readouterr().err
