"""`meannet fit` as a person meets it: what it says of a table, held against scikit-learn, and what it saves."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from meannet import DropoutClassifier, DropoutRegressor, fit
from meannet.cli import main
from meannet.data.columns import Encoding
from meannet.data.table import read
from meannet.fit import compared_told, settings
from meannet.judged import compared
from meannet.report.written import rate

FAST = ("--set", "hidden=16", "--set", "epochs=8")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with two tables: wines, whose labels are words, and the progress of diabetes."""
    monkeypatch.chdir(tmp_path)
    wine, diabetes = load_wine(), load_diabetes()
    for name, found, target in (
        ("wine", wine, np.array(["barolo", "grignolino", "barbera"])[wine.target]),
        ("diabetes", diabetes, diabetes.target),
    ):
        with Path(f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([*found.feature_names, "target"])
            rows.writerows([*x.tolist(), y] for x, y in zip(found.data, target, strict=True))
    return tmp_path


@pytest.fixture
def asked(capsys):
    """The document of a fit."""

    def ask(*arguments, code=0):
        capsys.readouterr()
        assert main(["fit", *arguments, *FAST, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return ask


def test_errors_are_those_of_scikit_learns_cross_validation(asked):
    X, y = load_wine(return_X_y=True)
    named = np.array(["barolo", "grignolino", "barbera"])[y]
    found = asked("wine.csv", "target", "--folds", "3")
    net = DropoutClassifier(16, epochs=8, random_state=0)
    splits = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    ours = {row["name"]: row["errors"] for row in found["judged"]}
    without = clone(net).set_params(dropout_hidden=0.0)
    for name, model in (("dropout", net), ("backprop", without)):
        np.testing.assert_allclose(ours[name], 1 - cross_val_score(model, X, named, cv=splits), atol=1e-12)
    assert list(ours) == ["dropout", "backprop", "random forest", "commonest"]
    assert found["comparison"]["difference"] == pytest.approx(np.mean(ours["dropout"]) - np.mean(ours["backprop"]))


def test_what_is_learned_of_columns_comes_from_the_training_rows_of_a_fold(asked, here):
    """As in a pipeline of scikit-learn's; some words and gaps are in the rows of one fold only."""
    random = np.random.default_rng(3)
    words = np.array([f"w{k}" if k < 6 else "" if k < 9 else "ab"[k % 2] for k in range(60)], object)
    # Whole numbers: of others the two means may differ in the last bit, and the order of cases follows from their bits.
    sizes = np.array([np.nan if k == 4 else random.integers(-20, 20) + 10 * (k % 2) for k in range(60)], object)
    labels = np.array(["yes" if k % 2 else "no" for k in range(60)])
    cells = ["" if size != size else repr(float(size)) for size in sizes]
    rows = [",".join(row) for row in zip(words, cells, labels, strict=True)]
    (here / "own.csv").write_text("\n".join(["word,size,y", *rows]))
    found = asked("own.csv", "y", "--folds", "4")
    numbers = make_pipeline(FunctionTransformer(lambda x: x.astype(np.float64)), SimpleImputer(add_indicator=True))
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [0]), (numbers, [1]), sparse_threshold=0)
    theirs = make_pipeline(encoder, DropoutClassifier(16, epochs=8, random_state=0))
    splits = RepeatedStratifiedKFold(n_splits=4, n_repeats=2, random_state=0)
    errors = 1 - cross_val_score(theirs, np.stack([words, sizes], 1), labels, cv=splits)
    np.testing.assert_allclose(found["judged"][0]["errors"], errors, atol=1e-12)


def test_numbers_are_predicted_and_judged_by_their_own_scale(asked):
    X, y = load_diabetes(return_X_y=True)
    found = asked("diabetes.csv", "target", "--folds", "3", "--repeats", "1", "-o", "net.safetensors")
    splits = RepeatedKFold(n_splits=3, n_repeats=1, random_state=0)
    net = DropoutRegressor(16, epochs=8, random_state=0)
    theirs = -cross_val_score(net, X, y, cv=splits, scoring="neg_root_mean_squared_error")
    ours = {row["name"]: row["errors"] for row in found["judged"]}
    np.testing.assert_allclose(ours["dropout"], theirs, rtol=1e-9)
    assert found["kind"] == "numbers" and list(ours) == ["dropout", "backprop", "random forest", "mean"]
    np.testing.assert_allclose(
        DropoutRegressor.load("net.safetensors").predict(X[:9]), clone(net).fit(X, y).predict(X[:9]), rtol=1e-9
    )


def test_the_standard_error_allows_for_folds_that_share_rows():
    random = np.random.default_rng(0)
    one, other = random.random((2, 10))
    found, difference = compared(one, other, folds=5), one - other
    assert found["standard_error"] == pytest.approx(np.sqrt((1 / 10 + 1 / 4) * difference.var(ddof=1)))
    assert not found["beyond_spread"] and compared(one, other + 9, folds=5)["beyond_spread"]
    assert not compared(one[:4], other[:4] + 9, folds=4)["beyond_spread"]  # too few folds
    assert not compared(one, one, folds=5)["beyond_spread"]


def test_a_net_goes_from_a_table_with_words_and_gaps_to_answers_and_onnx(here, capsys):
    random, rows = np.random.default_rng(0), []
    for k in range(80):
        sick, age = k % 2, "" if k % 9 == 0 else f"{random.normal(40 + 9 * (k % 2), 5):.2f}"
        rows.append(f"{age};{'red' if random.random() < 0.2 + 0.6 * sick else 'blue'};{'ja' if sick else 'nein'}\n")
    (here / "own.csv").write_text("age;colour;sick\n" + "".join(rows))
    assert main(["fit", "own.csv", "sick", "-o", "own.safetensors", *FAST]) == 0
    told = capsys.readouterr()
    assert "80 rows; 1 column of numbers and 1 column of words" in told.out and told.err == ""
    assert "missing, and told to the net as such: age 9" in told.out
    assert "sick: 2 labels, nein 40, ja 40\n" in told.out
    assert "wrote own.safetensors: the net with dropout, trained on all 80 rows" in told.out
    assert main(["fit", "own.csv", "sick", "-o", "own.safetensors", "--folds", "0", "--force", *FAST]) == 0
    capsys.readouterr()
    (here / "new.csv").write_text("colour,age\nred,50.5\nblue,\n")
    assert main(["predict", "own.safetensors", "new.csv"]) == 0
    answers = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    ages = [float(row.split(";")[0]) for row in rows if row[0] != ";"]
    inputs = np.array([[50.5, 0, 0, 1], [np.mean(ages), 1, 1, 0]])
    net = DropoutClassifier.load("own.safetensors")
    assert [answer["label"] for answer in answers] == net.predict(inputs).tolist()
    encoding = Encoding.load("own.safetensors")
    np.testing.assert_allclose(encoding.encode_new(read(here / "new.csv"), print), inputs, rtol=1e-12)
    net.save("bare.safetensors")
    with pytest.raises(ValueError, match="knows no columns"):
        Encoding.load("bare.safetensors")
    np.testing.assert_allclose([float(answer["p_ja"]) for answer in answers], net.predict_proba(inputs)[:, 0], 1e-5)
    assert main(["export", "own.safetensors", "--to", "onnx", "-o", "own.onnx"]) == 0
    assert "it takes 4 numbers, not the table" in capsys.readouterr().err
    session = onnxruntime.InferenceSession("own.onnx")
    given = session.run(None, {session.get_inputs()[0].name: inputs.astype(np.float32)})
    assert any(np.allclose(part, net.predict_proba(inputs), atol=1e-5) for part in given if np.ndim(part) == 2)
    for wrong, says in (
        (["new.csv", "new.csv"], "takes one table at a time"),
        (["none.csv"], "there is no file none.csv"),
    ):
        assert main(["predict", "own.safetensors", *wrong]) == 2
        assert says in capsys.readouterr().err


def test_without_folds_it_only_trains_and_without_dropout_nothing_is_compared(asked, here):
    found = asked("wine.csv", "target", "--folds", "0", "-o", "net.safetensors")
    assert (found["judged"], found["comparison"], found["wrote"]) == ([], None, "net.safetensors")
    found = asked("wine.csv", "target", "--folds", "2", "--set", "dropout_hidden=0")
    assert [row["name"] for row in found["judged"]] == ["backprop", "random forest", "commonest"]
    assert found["comparison"] is None and found["wrote"] is None


def test_where_a_new_table_has_the_target_its_errors_are_told(here, capsys):
    header, *rows = (here / "wine.csv").read_text().splitlines()
    for name, part in (("old", rows[::2]), ("new", [*rows[1::2], rows[1].replace("barolo", "")])):
        (here / f"{name}.csv").write_text("\n".join([header, *part]))
    assert main(["fit", "old.csv", "target", "-o", "net.safetensors", "--folds", "0", *FAST]) == 0
    assert main(["predict", "net.safetensors", "new.csv"]) == 0
    X, y = load_wine(return_X_y=True)
    named = np.array(["barolo", "grignolino", "barbera"])[y]
    error = 1 - DropoutClassifier(16, epochs=8, random_state=0).fit(X[::2], named[::2]).score(X[1::2], named[1::2])
    assert f"target is known for 89 rows: {100 * error:.1f} % of its answers are wrong" in capsys.readouterr().err


def test_labels_that_are_numbers_or_rare_are_pointed_out(here, capsys):
    rows = "".join(f"{k * k},{0 if k < 40 else k % 9}\n" for k in range(60))
    (here / "few.csv").write_text(f"a,y\n{rows}")
    assert main(["fit", "few.csv", "y", "--folds", "3", "--repeats", "1", *FAST]) == 0
    told = capsys.readouterr().out
    assert "y: 9 labels, 0 42, 4 3, 5 3, 6 2, 7 2 … (--as numbers takes them for numbers)" in told
    assert "note: labels in fewer rows than there are folds: 6 2, 7 2, 8 2, 1 2, 2 2 …" in told
    assert ": 3 folds are too few to tell it from chance (standard error" in told
    assert main(["fit", "few.csv", "y", "--folds", "50"]) == 2
    assert "rows of any label, 42; --as numbers takes the labels for numbers" in capsys.readouterr().err


def test_answers_are_compared_by_number_and_what_cannot_be_right_is_told(here, capsys):
    rows = [[k % 2 * 3 + k % 5, k % 2] for k in range(60)]
    for name, kind, more in (("labels", "labels", []), ("numbers", "numbers", ["--as", "numbers"])):
        (here / f"{kind}.csv").write_text("a;y\n" + "".join(f"{a};{y}\n" for a, y in rows))
        assert main(["fit", f"{kind}.csv", "y", "-o", f"{name}.safetensors", "--folds", "0", *FAST, *more]) == 0
    (here / "new.csv").write_text("a;y\n" + "".join(f"{a};{y}.0\n" for a, y in rows) + "1;2\n2;n.a.\n3;\n")
    capsys.readouterr()
    assert main(["predict", "labels.safetensors", "new.csv"]) == 0
    printed = capsys.readouterr()
    answers = [row["label"] for row in csv.DictReader(io.StringIO(printed.out))]
    wrong = sum(int(answer) != y for answer, (_, y) in zip(answers, rows, strict=False)) + 2
    assert "y holds 2, n.a. in 2 rows, no label of the net" in printed.err
    assert f"y is known for 62 rows: {rate(100 * wrong / 62)} of its answers are wrong" in printed.err
    assert main(["predict", "numbers.safetensors", "new.csv"]) == 0
    printed = capsys.readouterr()
    answers = [float(row["prediction"]) for row in csv.DictReader(io.StringIO(printed.out))]
    squares = [(answer - y) ** 2 for answer, y in zip(answers, [y for _, y in rows] + [2], strict=False)]
    assert "new.csv, line 63: y is 'n.a.', no number that can be used (1 such row in all)" in printed.err
    assert f"y is known for 61 rows: root mean square error {np.sqrt(np.mean(squares)):.4g}" in printed.err
    np.save("new.npy", np.zeros((3, 1)))
    assert main(["predict", "labels.safetensors", "new.npy"]) == 2


def test_errors_are_not_told_where_numbers_may_be_meant_in_two_ways(here, capsys):
    (here / "old.csv").write_text("a;y\n" + "".join(f"{k};{900 + k * k}\n" for k in range(40)))
    (here / "new.csv").write_text("a;y\n1;1.250\n2;900\n")
    assert main(["fit", "old.csv", "y", "-o", "net.safetensors", "--folds", "0", *FAST]) == 0
    assert main(["predict", "net.safetensors", "new.csv", "-o", "answers.csv"]) == 0
    assert "line 2: y is '1.250', which may be meant in two ways; no errors are told" in capsys.readouterr().err


def test_labels_are_compared_whatever_separates_cells(here, capsys):
    (here / "old.csv").write_text("a;y\n" + "".join(f"{k % 2 * 9};{k % 2},5\n" for k in range(40)))
    (here / "new.csv").write_text("a,y\n0,0.5\n9,1.5\n")
    assert main(["fit", "old.csv", "y", "--as", "labels", "-o", "net.safetensors", "--folds", "0"]) == 0
    assert main(["predict", "net.safetensors", "new.csv"]) == 0
    assert capsys.readouterr().err.endswith("y is known for 2 rows: 0 % of its answers are wrong\n")


def test_a_net_that_diverges_ends_with_its_own_code(here, capsys):
    assert main(["fit", "diabetes.csv", "target", "--set", "lr=1e9", "--folds", "2", "--json"]) == 3
    printed = capsys.readouterr()
    assert printed.out == "" and "meannet: training failed: in epoch" in printed.err


def test_differences_are_told_as_they_are():
    one, other = np.full(10, 0.002), np.array([0.003, 0.001] * 5)
    same, small = (compared_told(compared(one, held, folds=5), True) for held in (other, other + 0.0004))
    assert same == "with dropout as many errors: within the spread, so it may be chance (standard error 0.062)"
    assert small.startswith("with dropout 0.04 points fewer errors: within the spread")
    tiny = compared_told(compared(1e-14 * np.arange(10), 1e-14 * np.arange(10) + 2e-14, folds=5), False)
    assert tiny.startswith("with dropout 2e-14 less: beyond the spread")


def test_settings_are_read_as_their_kinds():
    given = ["hidden=8,4", "dropout_hidden=0.2", "epochs=9", "standardize=False", "units=logistic", "class_weight=None"]
    expected = {"hidden": (8, 4), "dropout_hidden": 0.2, "epochs": 9, "standardize": False, "units": "logistic"}
    assert settings(DropoutClassifier(), given) == expected | {"class_weight": None}


def test_a_reader_that_leaves_does_not_lose_the_net(here):
    command = [sys.executable, "-m", "meannet", "fit", "wine.csv", "target", "-o", "net.safetensors", *FAST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
    assert DropoutClassifier.load("net.safetensors").n_features_in_ == 13


def test_a_file_that_cannot_be_written_is_told_before_anything_is_trained(here, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fit, "TemporaryFile", full)
    monkeypatch.setattr(DropoutClassifier, "fit", lambda *_: pytest.fail("trained"))
    assert main(["fit", "wine.csv", "target", "-o", "net.safetensors"]) == 1
    assert capsys.readouterr().err == "meannet: No space left on device: net.safetensors\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.csv", "target"], "there is no file none.csv"),
        (["wine.csv", "Target"], "no column 'Target'; did you mean target"),
        (["wine.csv", "target", "--as", "words"], "--as must be labels or numbers, not 'words'"),
        (["wine.csv", "target", "--folds", "1"], "--folds must be 2 or more, or 0"),
        (["wine.csv", "target", "--folds", "72"], "--folds 72 are more than there are rows of any label, 71"),
        (["diabetes.csv", "target", "--folds", "443"], "--folds 443 are more than there are rows, 442"),
        (["wine.csv", "target", "--folds", "0"], "without -o nothing is saved"),
        (["wine.csv", "target", "--repeats", "0"], "--repeats must be 1 or more"),
        (["wine.csv", "target", "-o", "net.pt"], "a file that ends in .safetensors, not 'net.pt'"),
        (["wine.csv", "target", "-o", ""], "a file that ends in .safetensors, not ''"),
        (["wine.csv", "target", "--set", "hidden=,"], "--set takes NAME=VALUE, not 'hidden=,'"),
        (["wine.csv", "target", "--set", "random_state=x"], "'x' cannot be used to seed"),
        (["wine.csv", "target", "--set", "device=gpu"], "'device' parameter of DropoutClassifier must"),
        (["wine.csv", "target", "-o", "no/net.safetensors"], "there is no folder no"),
        (["wine.csv", "target", "-o", "is.safetensors"], "is there already"),
        (["wine.csv", "target", "--set", "hiden=3"], "no setting 'hiden'; did you mean hidden"),
        (["wine.csv", "target", "--set", "hidden"], "--set takes NAME=VALUE, not 'hidden'"),
        (
            ["wine.csv", "target", "--set", "dropout_hidden=2"],
            "'dropout_hidden' parameter of DropoutClassifier must",
        ),
        (["wine.csv", "target", "--set", "pretrain=1"], "no setting 'pretrain'"),
    ],
)
def test_wrong_requests_are_refused_in_one_line_before_any_work(here, capsys, arguments, says):
    (here / "is.safetensors").touch()
    assert main(["fit", *arguments]) == 2
    told = capsys.readouterr()
    assert says in told.err and told.err.count("\n") == 1 and not list(here.glob("net*"))


def test_a_signal_stops_it_and_nothing_is_written(here, monkeypatch, capsys):
    def stopped(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("went on")

    command = ["fit", "wine.csv", "target", "-o", "net.safetensors", "--folds", "0", *FAST]
    with monkeypatch.context() as patch:
        patch.setattr(DropoutClassifier, "fit", stopped)
        assert main(command) == 130
    assert "stopped; nothing was written" in capsys.readouterr().out and not list(here.glob("*net*"))
    monkeypatch.setattr(fit, "as_typed", stopped)  # which comes after
    assert main(command) == 130
    assert "stopped after net.safetensors was written" in capsys.readouterr().out and Path("net.safetensors").exists()
