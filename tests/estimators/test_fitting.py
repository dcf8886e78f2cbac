"""Fitting: targets of every kind, going on with training, interruptions, nets that fail, bad requests."""

import inspect
import pickle
import re

import numpy as np
import pytest
import torch
from estimator_toys import classifier, regressor, table
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from meannet import DropoutClassifier, DropoutRegressor
from meannet.estimators import cases, fitting
from meannet.fast.cpu import Skipping
from meannet.train import Fault, Plain, Why

X, Y = table()
LABELS = np.stack((X[:, 0] > X[:, 0].mean(), X[:, 1] > X[:, 1].mean()), 1).astype(np.int64)


def test_the_defaults_learn_iris_on_any_scale():
    X, y = load_iris(return_X_y=True)
    wild = X * [1e-9, 1e9, 1, 1e4] + [0, 1e9, 1e4, 0]
    scores = cross_val_score(DropoutClassifier(random_state=0), wild, load_iris().target_names[y], cv=3)
    assert scores.mean() > 0.93


def test_regression_bears_outliers_and_any_width():
    rng = np.random.RandomState(0)
    X = rng.standard_t(1.5, size=(300, 5))  # some are hundreds of standard deviations off
    y = np.tanh(X).sum(1)
    for hidden in (16, 256, 4000):
        assert DropoutRegressor(hidden, random_state=0, epochs=20).fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.2


def test_the_defaults_learn_a_line():
    X, y = make_regression(200, 5, noise=1.0, random_state=0)
    fitted = DropoutRegressor(random_state=0, epochs=60).fit(X, y * 1e4 - 1e6)
    assert fitted.score(X, y * 1e4 - 1e6) > 0.95


@pytest.mark.parametrize("labels", [["no", "yes", "perhaps"], [-7, 2**40, 5], [0.0, 1.0, 2.0], [True, False, True]])
def test_labels_come_back_as_they_were(labels):
    y = np.array(labels)[Y]
    fitted = classifier(epochs=30, hidden=(32,)).fit(X, y)
    assert fitted.predict(X).dtype == y.dtype and set(fitted.predict(X)) <= set(labels)
    np.testing.assert_array_equal(fitted.classes_, np.unique(y))
    assert fitted.score(X, y) > 0.6


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_inputs_may_be_of_any_number_type(dtype):
    inputs = np.random.RandomState(0).randint(0, 9, (40, 3))
    fitted, usual = classifier().fit(inputs.astype(dtype), Y), classifier().fit(inputs, Y)
    np.testing.assert_array_equal(fitted.predict_proba(inputs), usual.predict_proba(inputs))
    found = fitted.predict_proba(inputs.astype(dtype))
    assert found.dtype == (np.float32 if dtype == np.float32 else np.float64)
    np.testing.assert_array_equal(found, usual.predict_proba(inputs.astype(dtype)))


def test_one_class_is_always_predicted():
    fitted = classifier().fit(X, ["only"] * len(X))
    assert set(fitted.predict(X)) == {"only"} and fitted.predict_proba(X).tolist() == [[1.0]] * len(X)


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("rows", [1, 2, 10])
def test_a_few_rows_are_enough(make, rows):
    fitted = make(epochs=3).fit(X[:rows], np.arange(rows))
    assert np.isfinite(fitted.predict(X)).all()


@pytest.mark.parametrize("hidden", [(7, 5), (24,)])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_inputs_that_never_vary_are_no_failure(make, hidden):
    fitted = make(epochs=50, hidden=hidden, lr="auto").fit(np.ones((40, 3)), np.arange(40) % 4 == 0)
    assert np.allclose(fitted.predict(np.ones((2, 3))), 0.25 * (make is regressor), atol=0.1)


def test_sparse_inputs_without_any_entry_are_no_failure():
    fitted = classifier(epochs=50, lr="auto").fit(sparse.csr_matrix((40, 3)), np.arange(40) % 4 == 0)
    assert fitted.predict_proba(sparse.csr_matrix((2, 3)))[:, 1] == pytest.approx([0.25, 0.25], abs=0.1)


def test_a_target_that_never_varies_is_predicted_as_it_is():
    for fitted in (regressor().fit(X, np.full(len(X), 7e6)), regressor().fit(X[:1], [7e6])):
        mean, spread = fitted.predict(X, return_std=True, n=5)
        assert mean == pytest.approx([7e6] * len(X), rel=1e-12) and spread.max() < 1e-5
    both = regressor(epochs=50).fit(X, np.stack((Y, np.full(len(X), -3.0)), 1)).predict(X)
    assert both[:, 1] == pytest.approx([-3.0] * len(X), rel=1e-12) and both[:, 0].std() > 0.01
    varies = regressor(hidden=(16,), lr="auto").partial_fit(X[:1], [5.0])
    for _ in range(200):
        varies.partial_fit(X, Y)
    assert varies.score(X, Y) > 0.2


def test_multi_label_targets_are_learned_by_cross_entropy_of_logistic_outputs():
    fitted = classifier(epochs=80, hidden=(16,), batch=8).fit(X, LABELS)
    found = fitted.predict_proba(X)
    assert found.shape == LABELS.shape and fitted.predict(X).dtype == LABELS.dtype
    np.testing.assert_array_equal(fitted.predict(X), found > 0.5)
    assert fitted.score(X, LABELS) > 0.7
    samples = fitted.sample_proba(X, 5)
    np.testing.assert_allclose(fitted.predict_proba(X, average="arithmetic", n=5), samples.mean(0), rtol=1e-9)
    odds = np.exp(np.log(samples / (1 - samples)).mean(0))
    np.testing.assert_allclose(fitted.predict_proba(X, average="geometric", n=5), odds / (1 + odds), rtol=1e-9)


def test_several_targets_have_a_softmax_each():
    y = np.stack((np.array(["a", "b", "c"])[Y], np.array(["x", "y"])[LABELS[:, 0]]), 1)
    fitted = classifier(epochs=80, hidden=(16,)).fit(X, y)
    first, second = fitted.predict_proba(X)
    assert first.shape == (40, 3) and second.shape == (40, 2)
    np.testing.assert_allclose(first.sum(1), 1)
    np.testing.assert_array_equal(fitted.predict(X)[:, 1], fitted.classes_[1][second.argmax(1)])
    assert fitted.score(X, y) > 0.5
    assert [part.shape for part in fitted.sample_proba(X, 2)] == [(2, 40, 3), (2, 40, 2)]
    assert len(fitted.predict_proba(X, average="geometric", n=2)) == 2
    weighted = classifier(class_weight="balanced").fit(X, y)
    assert np.isfinite(weighted.predict_proba(X)[0]).all()


def test_several_targets_may_be_words_and_numbers_side_by_side(tmp_path):
    pandas = pytest.importorskip("pandas")
    words = np.array(["a", "b", "c"])[Y]
    fitted = classifier(epochs=80, hidden=(16,)).fit(X, pandas.DataFrame({"word": words, "number": LABELS[:, 0] + 5}))
    assert [part.tolist() for part in fitted.classes_] == [["a", "b", "c"], [5, 6]]
    found = fitted.predict(X)
    assert (found[:, 0] == words).mean() > 0.6 and set(found[:, 1]) <= {5, 6}
    fitted.save(tmp_path / "it")
    assert (type(fitted).load(tmp_path / "it").predict(X) == found).all()
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        classifier().fit(X, pandas.DataFrame({"word": words, "number": X[:, 0]}))


def test_partial_fit_is_an_epoch_a_call_and_needs_the_classes_first():
    fitted = classifier(hidden=(16,))
    with pytest.raises(ValueError, match="classes must be passed on the first call to partial_fit"):
        fitted.partial_fit(X, Y)
    for _ in range(40):
        fitted.partial_fit(X[:20], Y[:20], classes=[0, 1, 2]).partial_fit(X[20:], Y[20:])
    assert fitted.n_iter_ == 80 == len(fitted.history_) and fitted.score(X, Y) > 0.6
    with pytest.raises(ValueError, match="not what the first call"):
        fitted.partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"not among the classes: \[7\]"):
        fitted.partial_fit(X, np.full(len(X), 7))
    with pytest.raises(ValueError, match="features"):
        fitted.partial_fit(X[:, 1:], Y)


def test_partial_fit_of_regression_goes_on():
    fitted = regressor()
    losses = [fitted.partial_fit(X, X[:, :2]).history_[-1]["train_loss"] for _ in range(30)]
    assert losses[-1] < losses[0] and fitted.predict(X).shape == (40, 2)
    with pytest.raises(ValueError, match="y has 1 targets"):
        fitted.partial_fit(X, X[:, 0])


def test_warm_start_goes_on_with_the_nets_and_the_schedule_anew():
    fitted = classifier(warm_start=True, epochs=5).fit(X, Y)
    first = [weight.clone() for weight in fitted._fleet.weights]
    fitted.fit(X, Y)
    assert fitted.n_iter_ == 10 and [r["epoch"] for r in fitted.history_] == list(range(1, 11))
    assert fitted.history_[5]["lr"] == fitted.history_[0]["lr"] > fitted.history_[4]["lr"]
    assert 0 < max(float((a - b).abs().max()) for a, b in zip(first, fitted._fleet.weights, strict=True)) < 1
    assert classifier(epochs=5).fit(X, Y).fit(X, Y).n_iter_ == 5


@pytest.mark.parametrize(
    "change", [{"hidden": (7, 6)}, {"hidden": 7}, {"units": "logistic"}, {"dropout_hidden": 0.2}, {"n_nets": 2}]
)
def test_training_does_not_go_on_with_nets_of_another_shape(change):
    (name,) = change
    going = classifier(warm_start=True).fit(X, Y)
    before = going.predict_proba(X)
    going.set_params(**change)
    for again in (going.fit, going.partial_fit):
        with pytest.raises(ValueError, match=rf"{name} is .*, but the nets .* have .*warm_start=False"):
            again(X, Y)
    np.testing.assert_array_equal(going.predict_proba(X), before)
    going.set_params(warm_start=False).fit(X, Y)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_partial_fit_refuses_early_stopping_as_scikit_learn_does(make):
    with pytest.raises(ValueError, match="partial_fit does not support early_stopping=True"):
        make(early_stopping=True).partial_fit(X, Y)


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(make, warm_start):
    fitted = make(warm_start=warm_start).fit(X, Y)
    before, history, y = fitted.predict(X), [*fitted.history_], Y if warm_start else Y[:, None] + np.arange(2)
    fitted.set_params(lr=1e30, limit=np.inf)
    for bad in ((X, y), (X[:, 1:], Y), (X, Y[:5])):
        with pytest.raises(ValueError):
            fitted.fit(*bad)
        np.testing.assert_array_equal(fitted.predict(X), before)
        assert fitted.history_ == history and fitted.n_iter_ == 4 and fitted.n_features_in_ == 6
    untouched = make(lr=1e30, limit=np.inf)
    with pytest.raises(ValueError, match="diverged"):
        untouched.fit(X, Y)
    assert not [name for name in vars(untouched) if name.endswith("_") or name.startswith("_")]


def test_randomness_follows_scikit_learns_conventions():
    def weights(state):
        return classifier(random_state=state).fit(X, Y)._fleet.weights[0]

    assert weights(0).equal(weights(0)) and not weights(0).equal(weights(1)) and not weights(None).equal(weights(None))
    assert weights(np.random.RandomState(0)).equal(weights(np.random.RandomState(0)))
    stream = np.random.RandomState(0)
    assert not weights(stream).equal(weights(stream))
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    weights(0)
    assert torch.rand(1).equal(before)  # the global stream is left alone


def test_early_stopping_goes_back_to_the_best_validation_loss():
    fitted = classifier(early_stopping=True, n_iter_no_change=3, epochs=200, lr=0.5, dropout_hidden=0.0, batch=4)
    fitted.fit(X, np.random.RandomState(0).randint(0, 2, len(X)))  # nothing to be learned
    losses = [record["validation_loss"] for record in fitted.history_]
    assert len(losses) == fitted.n_iter_ == int(np.argmin(losses)) + 4 < 200
    with pytest.raises(ValueError, match="leaves no case of 1"):
        classifier(early_stopping=True).fit(X[:1], Y[:1])


def test_history_has_a_record_an_epoch():
    fitted = classifier().fit(X, Y)
    assert [list(record) for record in fitted.history_] == [
        ["epoch", "train_loss", "train_error", "lr", "momentum"]
    ] * 4
    assert "train_error" not in regressor().fit(X, X[:, 0]).history_[0]


def test_an_interrupted_fit_leaves_the_last_whole_epoch(monkeypatch):
    for engine in (Plain, Skipping):

        def epoch(self, number, *more, whole=engine.epoch):
            tally = whole(self, number, *more)
            if number == 2:
                raise KeyboardInterrupt
            return tally

        monkeypatch.setattr(engine, "epoch", epoch)
    with pytest.warns(UserWarning, match="interrupted; the nets are as they were after epoch 2"):
        stopped = regressor(epochs=9, lr_end=1.0, momentum=(0.5, 0.5)).fit(X, X[:, 0])
    monkeypatch.undo()
    expected = regressor(epochs=2, lr_end=1.0, momentum=(0.5, 0.5)).fit(X, X[:, 0])
    assert stopped.n_iter_ == 2
    np.testing.assert_array_equal(stopped.predict(X), expected.predict(X))


def test_verbose_shows_progress(capsys):
    classifier(verbose=1, epochs=20).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and re.match(
        r"epoch 20 of 20: train loss [\d.]+, train error [\d.]+; .* s left$", lines[-1]
    )
    classifier().fit(X, Y)
    assert capsys.readouterr().out == ""


def test_a_net_that_diverges_is_an_error_that_names_the_remedy():
    with pytest.raises(ValueError, match=r"training failed: in epoch \d+ the net diverged.*lower lr \(it is 1e\+30\)"):
        regressor(lr=1e30, limit=np.inf).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="standardize=True"):
        regressor(standardize=False, lr=1e20, limit=np.inf).fit(X * 1e30, X[:, 0])


def test_a_failed_net_of_several_is_left_out_with_a_warning(monkeypatch):
    def follow(self, epochs, *more):
        return [*whole(self, epochs, *more), Fault(1, 2, Why.SILENT, 1, 0.1)]

    whole = fitting.DropoutNet._follow
    three = classifier(n_nets=3).fit(X, Y)
    monkeypatch.setattr(fitting.DropoutNet, "_follow", follow)
    with pytest.warns(ConvergenceWarning, match=r"1 of 3 nets failed and are left out.*lower lr .* or dropout_hidden"):
        two = classifier(n_nets=3).fit(X, Y)
    assert two._fleet.seeds.tolist() == [three._fleet.seeds[0], three._fleet.seeds[2]]
    assert two._fleet.weights[0][1].equal(three._fleet.weights[0][2])


def test_cases_learned_to_the_last_bit_are_no_collapse():
    easy = np.array([[-1.0], [1.0]] * 20)
    fitted = classifier(hidden=(8,), epochs=300, lr=5.0, dropout_hidden=0.0, limit=np.inf).fit(easy, easy[:, 0])
    assert fitted.score(easy, easy[:, 0]) == 1


def test_a_net_that_collapsed_is_found_however_few_cases_each_call_has():
    fitted = classifier(hidden=(8,)).partial_fit(X[:20], Y[:20], classes=np.unique(Y))
    fitted._fleet.biases[0].fill_(-100)
    with pytest.raises(ValueError, match="collapsed"):
        for _ in range(3):  # 60 presentations of cases
            fitted.partial_fit(X[:20], Y[:20])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", (0,)), ("hidden", "800"), ("units", "tanh"), ("dropout_hidden", 1.0), ("dropout_visible", -0.1),
        ("epochs", 0), ("epochs", "many"), ("batch", 2.5), ("lr", 0), ("lr", float("nan")), ("lr_end", 2),
        ("momentum", 0.9), ("momentum", (0.5, 1.0)), ("limit", 0), ("limit", None), ("standardize", "yes"),
        ("n_nets", 0), ("validation_fraction", 1.0), ("n_iter_no_change", 0), ("device", "gpu"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named_with_what_is_allowed(name, value):
    with pytest.raises(ValueError, match=rf"The '{name}' parameter of DropoutClassifier must be .* Got .* instead\."):
        classifier(**{name: value}).fit(X, Y)


def test_bad_input_gets_scikit_learns_messages():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        classifier().predict(X)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        classifier().sample_proba(X)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        classifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        regressor().fit(X * np.nan, X[:, 0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        regressor().fit(X, X[1:, 0])
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        classifier().fit(X, Y, sample_weight=-np.ones(len(X)))
    with pytest.raises(ValueError, match="X has 5 features, but DropoutRegressor is expecting 6"):
        regressor().fit(X, X[:, 0]).predict(X[:, 1:])
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device here; use device='cpu'"):
            classifier(device="cuda").fit(X, Y)


def test_no_hidden_layer_is_a_linear_model():
    fitted = classifier(hidden=(), dropout_visible=0.2, epochs=30).fit(X, Y)
    assert fitted.score(X, Y) > 0.7
    assert [type(part).__name__ for part in fitted.network_] == ["Standardise", "Linear", "Softmax"]
    assert classifier(hidden=9).fit(X, Y)._fleet.sizes == (6, 9, 3)


def test_pickles_and_clones_predict_the_same():
    for fitted in (classifier(n_nets=2).fit(X, Y), regressor().fit(X, X[:, 0])):
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
        again = clone(fitted).fit(X, Y if again.__class__ is DropoutClassifier else X[:, 0])
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_a_grid_is_searched_in_a_pipeline_by_two_processes():
    search = GridSearchCV(
        make_pipeline(MinMaxScaler(), classifier()), {"dropoutclassifier__dropout_hidden": [0.0, 0.5]}, cv=2, n_jobs=2
    )
    assert search.fit(X, Y).best_params_["dropoutclassifier__dropout_hidden"] in (0.0, 0.5)


def test_data_frames_keep_their_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    fitted = classifier().fit(frame, pandas.Series(Y))
    assert fitted.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_array_equal(fitted.predict_proba(frame), classifier().fit(X, Y).predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[list("fedcba")])


def test_data_frames_are_taken_with_their_names(tmp_path):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    fitted = classifier().fit(frame, pd.Series(Y, name="kind"))
    np.testing.assert_array_equal(fitted.feature_names_in_, list("abcdef"))
    np.testing.assert_array_equal(fitted.predict_proba(frame), classifier().fit(X, Y).predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[list("bacdef")])
    fitted.save(tmp_path / "net.safetensors")
    again = DropoutClassifier.load(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(again.predict(frame), fitted.predict(frame))
    piped = make_pipeline(MinMaxScaler().set_output(transform="pandas"), classifier()).fit(frame, Y)
    assert list(piped[-1].feature_names_in_) == list("abcdef")
    several = regressor().fit(frame, frame[["a", "b"]])
    assert several.predict(frame).shape == (40, 2)


def test_a_column_that_never_varies_is_left_alone_sparse_as_dense():
    columns = np.column_stack((np.full(72, 0.6931472), np.arange(72) % 5 == 0, np.arange(72) % 2)).astype(np.float32)
    for weights in (None, np.linspace(0.3, 2.0, 72)):
        found = [cases.Scaling.of(x, np.arange(72), weights).scale for x in (sparse.csr_array(columns), columns)]
        assert found[0] == pytest.approx(found[1], rel=1e-12)
        assert found[0][0] == pytest.approx(0.6931472)


def test_both_estimators_have_the_same_parameters_and_defaults():
    shared = DropoutClassifier().get_params()
    assert shared.pop("class_weight") is None
    assert DropoutRegressor().get_params() == shared and list(inspect.signature(DropoutRegressor).parameters) == [
        name for name in inspect.signature(DropoutClassifier).parameters if name != "class_weight"
    ]


def test_a_training_loss_that_rose_is_told():
    x, y = load_iris(return_X_y=True)
    few = np.random.RandomState(0).permutation(len(x))[:60]
    with pytest.warns(ConvergenceWarning, match=r"training loss rose, from 1\.06 to .*more epochs, or lower lr"):
        DropoutClassifier(epochs=5, random_state=0).fit(x[few], y[few])


def test_targets_that_are_all_alike_are_learned_without_a_warning():
    inputs = np.random.RandomState(0).normal(size=(60, 3))
    fitted = DropoutRegressor(epochs=5, random_state=0).fit(inputs, np.ones(60))  # warnings are errors here
    np.testing.assert_allclose(fitted.predict(inputs), 1.0)
