"""The pretrained transformers in use: features, pipelines, finetuning, few labels, and files."""

import itertools
import os
import signal

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import BernoulliRBM as Theirs
from sklearn.pipeline import make_pipeline

from meannet import DBM, DBN, BernoulliRBM, DropoutClassifier, DropoutRegressor, GaussianRBM, checkpoint
from meannet.checkpoint import CheckpointError
from meannet.estimators.parameters import net_seeds
from meannet.pretrain.rbm import initial_rbm

SHORT = {"epochs": 5, "random_state": 0}
EVERY = [
    BernoulliRBM(30, **SHORT),
    GaussianRBM(30, **SHORT),
    DBN((30, 20), **SHORT),
    DBN((30, 20), visible="gaussian", persistent=True, momentum=(0.5, 0.5), **SHORT),
    DBM((30, 20), joint_epochs=3, **SHORT),
]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def logistic(x):
    return 1 / (1 + np.exp(-x))


def test_features_are_those_of_the_attributes(digits):
    X, _ = digits
    found = BernoulliRBM(30, **SHORT).fit(X)
    expected = logistic(X @ found.components_.T + found.intercept_hidden_)
    np.testing.assert_allclose(found.transform(X), expected, rtol=1e-10)
    np.testing.assert_allclose(
        found.inverse_transform(expected), logistic(expected @ found.components_ + found.intercept_visible_), rtol=1e-10
    )
    deep = DBN((30, 20), **SHORT).fit(X)
    first = logistic(X @ deep.components_[0].T + deep._stack.layers[0].hidden_biases[0].numpy())
    second = logistic(first @ deep.components_[1].T + deep._stack.layers[1].hidden_biases[0].numpy())
    np.testing.assert_allclose(deep.transform(X), second, rtol=1e-9)
    assert deep.get_feature_names_out()[:2].tolist() == ["dbn0", "dbn1"]


def test_free_energies_and_scores_are_scikit_learns(digits):
    X, _ = digits
    X = (X[:200] > 0.5).astype(float)
    ours = BernoulliRBM(12, **SHORT).fit(X)
    theirs = Theirs(12).fit(X)
    theirs.components_, theirs.intercept_hidden_ = ours.components_, ours.intercept_hidden_
    theirs.intercept_visible_ = ours.intercept_visible_
    np.testing.assert_allclose(ours.free_energy(X), theirs._free_energy(X), rtol=1e-10)
    # Theirs looks at one unit of each case, drawn at random, and ours at one that follows from the case: one of these.
    gaps = [
        theirs._free_energy(np.where(np.arange(64) == unit, 1 - X, X)) - theirs._free_energy(X) for unit in range(64)
    ]
    every = -64 * np.logaddexp(0, -np.array(gaps))  # (units, cases)
    assert np.isclose(ours.score_samples(X), every, rtol=1e-9).any(0).all()


def test_the_fit_raises_the_likelihood_of_the_cases_and_the_partition_function_is_right(digits):
    X = (digits[0][:300, ::4] > 0.5).astype(float)  # 16 units: all states can be gone through
    states = np.array([[i >> k & 1 for k in range(16)] for i in range(2**16)], float)

    def likelihood(found):
        return -found.free_energy(X).mean() - np.logaddexp.reduce(-found.free_energy(states))

    short, long = (BernoulliRBM(10, epochs=epochs, random_state=0).fit(X) for epochs in (1, 30))
    # Chains want small steps, and so more of them.
    persistent = BernoulliRBM(10, epochs=150, persistent=True, momentum=(0.5, 0.5), random_state=0).fit(X)
    assert likelihood(long) > likelihood(short) + 0.2 and likelihood(persistent) > likelihood(short) + 0.2
    exact = np.logaddexp.reduce(-long.free_energy(states))
    estimate, low, high = long.log_partition()
    assert low < exact < high and estimate == pytest.approx(exact, abs=0.2)


def test_a_boltzmann_machines_bound_is_below_the_log_probability_and_close(digits):
    X = (digits[0][:300, 2:60:6] > 0.5).astype(float)  # 10 units
    found = DBM((4, 3), epochs=40, joint_epochs=20, random_state=0).fit(X)
    v, first = (np.array(list(itertools.product((0.0, 1.0), repeat=n))) for n in (10, 4))
    w1, w2 = found.components_
    a, b, c = found.intercepts_
    table = (v @ a)[:, None] + first @ b + v @ w1.T @ first.T
    table += np.logaddexp(0, first @ w2.T + c).sum(1)  # the second layer summed out
    log_z = np.logaddexp.reduce(table, axis=None)
    estimate, low, high = found.log_partition(300)
    assert low < log_z < high and estimate == pytest.approx(log_z, abs=0.1)
    gap = np.logaddexp.reduce(table, axis=1) - log_z - found.bound(v, log_z)
    assert (gap >= -1e-9).all() and 0 < gap.mean() < 0.3
    with pytest.raises(ValueError, match="cases of 0s and 1s"):
        found.bound(v / 2)
    np.testing.assert_allclose(found.bound(v, 2.0), found.bound(v) - 2.0)


def test_the_layers_of_a_belief_net_may_keep_chains(digits):
    X, _ = digits
    few = {"epochs": 3, "momentum": (0.5, 0.5), "random_state": 0}
    deep, one = DBN((30, 20), persistent=True, **few).fit(X), BernoulliRBM(30, persistent=True, **few).fit(X)
    np.testing.assert_allclose(deep.components_[0], one.components_, rtol=1e-5, atol=1e-6)
    assert not np.allclose(deep.components_[0], DBN(30, **few).fit(X).components_[0], atol=0.01)


def test_gaussian_features_do_not_depend_on_the_inputs_scale(digits):
    X, _ = digits
    first, second = (GaussianRBM(20, **SHORT).fit(x) for x in (X, 100 * X - 7))
    np.testing.assert_allclose(second.transform(100 * X - 7), first.transform(X), rtol=1e-3, atol=1e-4)
    assert first.score_samples(X).shape == (len(X),)


def test_inputs_beyond_one_are_brought_into_the_unit_interval(digits):
    X = 16 * digits[0]
    wide, narrow = BernoulliRBM(20, **SHORT).fit(X), BernoulliRBM(20, **SHORT)
    span = X.max(0) - X.min(0)
    narrow.fit((X - X.min(0)) / np.where(span > 0, span, 1))
    np.testing.assert_allclose(wide.components_, narrow.components_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("estimator", EVERY, ids=lambda e: type(e).__name__ + getattr(e, "visible", ""))
def test_a_saved_transformer_is_the_same_and_samples_look_like_inputs(estimator, digits, tmp_path):
    X, _ = digits
    found = clone(estimator).fit(X)
    found.save(tmp_path / "it")
    again = type(found).load(tmp_path / "it")
    assert np.array_equal(again.transform(X), found.transform(X)) and again.get_params() == found.get_params()
    drawn = found.sample(50, 20)
    assert drawn.shape == (50, 64) and np.array_equal(drawn, again.sample(50, 20))
    assert np.corrcoef(drawn.mean(0), X.mean(0))[0, 1] > 0.8
    damaged = bytearray((tmp_path / "it").read_bytes())
    damaged[-3] ^= 1
    (tmp_path / "it").write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        type(found).load(tmp_path / "it")


@pytest.mark.parametrize("estimator", EVERY, ids=lambda e: type(e).__name__ + getattr(e, "visible", ""))
def test_parameters_set_after_the_fit_wait_for_the_next(estimator, digits, tmp_path):
    X, _ = digits
    found = clone(estimator).fit(X)
    features, drawn = found.transform(X), found.sample(2, 3)
    other = {"n_components": 9} if hasattr(found, "n_components") else {"hidden": (9, 8), "steps": 2}
    other |= {"sweeps": 1, "chains": 3} if hasattr(found, "sweeps") else {}
    found.set_params(**other, random_state=7, batch=3).save(tmp_path / "it")
    again = DBN.load(tmp_path / "it") if isinstance(found, DBN) else type(found).load(tmp_path / "it")
    assert again.get_params() == found.get_params()
    for one in (found, again):
        assert np.array_equal(one.transform(X), features) and np.array_equal(one.sample(2, 3), drawn)
        assert len(one.get_feature_names_out()) == features.shape[1]
    assert again.fit(X[:99]).transform(X).shape[1] == len(again.get_feature_names_out()) < 10


def test_a_file_that_says_nothing_of_the_parameters_of_the_fit_is_read_by_those_it_has(digits, tmp_path):
    X, _ = digits
    found = DBM((6, 5), joint_epochs=1, chains=7, **SHORT).fit(X)
    found.save(tmp_path / "it")
    tensors, facts = checkpoint.read(tmp_path / "it")
    del facts["asked"]  # as files were once
    checkpoint.save(tmp_path / "it", tensors, facts, keep_previous=False)
    assert np.array_equal(DBM.load(tmp_path / "it").transform(X), found.transform(X))


def test_a_classifier_keeps_the_layers_that_its_frozen_stack_was_fitted_with(digits, tmp_path):
    X, y = digits[0][:99], digits[1][:99]
    stack = DBN((6, 5), **SHORT).fit(X)
    few = {"epochs": 1, "random_state": 0}
    wanted = DropoutClassifier(pretrain=FrozenEstimator(stack), **few).fit(X, y).predict_proba(X)
    stack.set_params(hidden=(9, 9, 9))
    net = DropoutClassifier(pretrain=FrozenEstimator(stack), **few).fit(X, y)
    net.save(tmp_path / "net")
    again = DropoutClassifier.load(tmp_path / "net")
    assert again.pretrain.hidden == (9, 9, 9)
    for one in (net, again, again.fit(X, y)):
        assert np.array_equal(one.predict_proba(X), wanted)


def test_each_net_of_a_classifier_starts_from_a_stack_of_its_own(digits):
    X, y = digits
    few = {"epochs": 1, "lr": 1e-9, "dropout_hidden": 0.0, "random_state": 0}
    three = DropoutClassifier(pretrain=DBN((20, 10), **SHORT), n_nets=3, **few).fit(X[:300], y[:300])
    one = DropoutClassifier(pretrain=DBN((20, 10), **SHORT), **few).fit(X[:300], y[:300])
    for weights, alone, kept in zip(
        three._fleet.weights, one._fleet.weights, three.pretrain_.components_, strict=False
    ):
        np.testing.assert_allclose(weights[0], alone[0], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(weights[0], kept, atol=1e-6)  # the attribute is the first net's
        assert (weights[1] - weights[2]).abs().mean() > 0.05
    moved = (three._fleet.weights[0] - initial_rbm(64, 20, net_seeds(0, 3), sd=0.1).weights).std((1, 2))
    assert 0.02 < moved.max() < 1.2 * moved.min()  # all three were trained, from seeds of their own


def test_they_work_in_pipelines_and_searches(digits):
    X, y = digits
    pipeline = make_pipeline(BernoulliRBM(60, epochs=10, random_state=0), LogisticRegression(max_iter=2000, C=10))
    assert pipeline.fit(X[:900], y[:900]).score(X[900:], y[900:]) > 0.85
    searched = make_pipeline(DBN(random_state=0, epochs=10), LogisticRegression(max_iter=2000, C=10))
    search = GridSearchCV(searched, {"dbn__hidden": [(40,), (1,)]}, cv=2).fit(X[:400], y[:400])
    assert search.best_params_ == {"dbn__hidden": (40,)} and search.best_score_ > 0.7
    assert search.cv_results_["mean_test_score"][1] < 0.4  # one unit does not tell ten digits apart


@pytest.mark.parametrize("estimator", EVERY, ids=lambda e: type(e).__name__ + getattr(e, "visible", ""))
def test_every_transformer_hands_its_features_on_in_a_pipeline(estimator, digits):
    (X, y), last = digits, LogisticRegression(max_iter=2000, C=100)
    pipeline = make_pipeline(clone(estimator), clone(last)).fit(X[:900], y[:900])
    alone = clone(estimator).fit(X[:900])
    by_hand = clone(last).fit(alone.transform(X[:900]), y[:900])
    np.testing.assert_array_equal(pipeline.predict_proba(X[900:]), by_hand.predict_proba(alone.transform(X[900:])))
    assert pipeline.score(X[900:], y[900:]) > 0.5


def test_inputs_on_another_scale_than_those_of_the_fit_are_warned_of(digits):
    X, _ = digits
    fitted = BernoulliRBM(5, **SHORT).fit(X)
    for use in (fitted.transform, fitted.free_energy, make_pipeline(fitted).transform):
        with pytest.warns(UserWarning, match=r"reach from 0 to 255, and those of the fit were in \[0, 1\]") as caught:
            use(255 * X)
        assert caught[0].filename == __file__


def test_a_classifier_warns_of_inputs_on_another_scale_than_its_frozen_stacks(digits):
    X, y = digits[0][:60], digits[1][:60]
    net = DropoutClassifier(pretrain=FrozenEstimator(DBN((5,), **SHORT).fit(X)), epochs=1, random_state=0)
    net.fit(X, y)  # warnings are errors here
    with pytest.warns(UserWarning, match=r"reach from 0 to 255, and those of the fit were in \[0, 1\]") as caught:
        net.fit(255 * X, y)
    assert caught[0].filename == __file__


def test_inputs_that_are_nearly_in_the_unit_interval_are_told_what_auto_makes_of_them(digits):
    X = digits[0].copy()
    X[3, 4] = 1.0001
    with pytest.warns(UserWarning, match="reach from 0 to 1.0001, so that visible='auto' takes Gaussian") as caught:
        found = DBN(5, **SHORT).fit(X)
    assert found._stack.settings.visible == "gaussian" and caught[0].filename == __file__
    with pytest.warns(UserWarning, match="takes Gaussian") as caught:
        DBN(5, **SHORT).fit_transform(X)
    assert caught[0].filename == __file__
    for clear in (DBN(5, visible="bernoulli", **SHORT), DBN(5, visible="gaussian", **SHORT)):
        clear.fit(X)  # warnings are errors here
    DBN(5, **SHORT).fit(16 * X)


def test_layer_sizes_may_be_numpys_whole_numbers(digits):
    X, _ = digits
    assert DBN(np.int64(5), **SHORT).fit(X).transform(X).shape == (len(X), 5)


def test_features_in_a_data_frame_find_their_way_back_without_a_warning(digits):
    X, _ = digits
    made = BernoulliRBM(5, **SHORT).set_output(transform="pandas").fit(X)
    features = made.transform(X)
    np.testing.assert_allclose(made.inverse_transform(features), made.inverse_transform(features.to_numpy()))


def test_a_classifiers_seed_is_its_stacks_where_that_has_none(digits):
    X, y = digits
    first, second = (
        DropoutClassifier(pretrain=DBN((20,), epochs=1), epochs=2, random_state=4).fit(X[:200], y[:200])
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


def test_with_few_labels_a_stack_pretrained_on_all_inputs_beats_one_without(digits):
    """A hundred labels of 1,297 pictures, five choices of them."""
    X, y = digits
    train, test = slice(0, 1297), slice(1297, None)
    stack = DBN((200, 200), epochs=40, random_state=0).fit(X[train])
    wrong = {"pretrained": [], "scratch": []}
    for seed in range(5):
        few = np.random.default_rng(seed).permutation(1297)[:100]
        for name, pretrain in (("pretrained", FrozenEstimator(stack)), ("scratch", None)):
            net = DropoutClassifier(
                (200, 200), units="logistic", pretrain=pretrain, epochs=150, lr=1.0, batch=20, random_state=seed
            )
            wrong[name].append((net.fit(X[few], y[few]).predict(X[test]) != y[test]).sum())
    assert np.mean(wrong["pretrained"]) < np.mean(wrong["scratch"])


def test_a_classifier_starts_from_what_was_pretrained_and_keeps_a_frozen_stack(digits, tmp_path):
    X, y = digits
    stack = DBN((30, 20), **SHORT).fit(X)
    before = stack.components_[0].copy()
    net = DropoutClassifier(
        pretrain=FrozenEstimator(stack), dropout_visible=0.1, epochs=1, lr=1e-6, random_state=0
    ).fit(X[:300], y[:300])
    # Divided by 1 - rate, the weights that omitted inputs and units feed.
    np.testing.assert_allclose(net._fleet.weights[0][0], before / 0.9, atol=1e-4)
    np.testing.assert_allclose(net._fleet.weights[1][0], stack.components_[1] / 0.5, atol=1e-4)
    assert np.array_equal(stack.components_[0], before) and net._fleet.units == "logistic"
    net.save(tmp_path / "net")
    again = DropoutClassifier.load(tmp_path / "net")
    assert np.array_equal(again.predict_proba(X), net.predict_proba(X))
    assert again.pretrain.hidden == (30, 20)
    net.set_params(pretrain=FrozenEstimator(DBN((3,)))).save(tmp_path / "net")  # what was fitted is not lost by that
    assert np.array_equal(DropoutClassifier.load(tmp_path / "net").predict_proba(X), again.predict_proba(X))
    with pytest.raises(ValueError, match="The 'hidden' parameter of DBN must be"):
        DropoutClassifier(pretrain=DBN("abc")).fit(X, y)


@pytest.mark.parametrize("kind", [DBN, GaussianRBM])
def test_a_loaded_classifier_is_fitted_anew_on_the_frozen_stack_that_it_was_saved_with(kind, digits, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = pandas.DataFrame(digits[0] * 3).add_prefix("pixel"), digits[1]
    stack = kind(20, momentum=[0.5, 0.9], random_state=np.random.RandomState(3), epochs=2).fit(X)
    few = {"epochs": 2, "random_state": 0}
    wanted = DropoutClassifier(pretrain=FrozenEstimator(stack), **few).fit(X[:50], y[:50])
    DropoutClassifier(pretrain=FrozenEstimator(stack), **few).fit(X[50:99], y[50:99]).save(tmp_path / "net")
    for _ in range(2):  # the second time from a file that a loaded one wrote
        loaded = DropoutClassifier.load(tmp_path / "net")
        assert np.array_equal(loaded.pretrain.transform(X), stack.transform(X))
        loaded.save(tmp_path / "net")
        assert np.array_equal(loaded.fit(X[:50], y[:50]).predict_proba(X), wanted.predict_proba(X))


def test_a_classifier_whose_file_says_nothing_of_a_frozen_stack_is_loaded_with_one_to_fit(digits, tmp_path):
    X, y = digits[0][:60], digits[1][:60]
    net = DropoutClassifier(pretrain=FrozenEstimator(DBN((5,), **SHORT).fit(X)), epochs=1, random_state=0).fit(X, y)
    net.save(tmp_path / "net")
    tensors, facts = checkpoint.read(tmp_path / "net")
    del facts["frozen"]  # as files were once
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("frozen.")}
    checkpoint.save(tmp_path / "net", kept, facts, keep_previous=False)
    again = DropoutClassifier.load(tmp_path / "net")
    assert isinstance(again.pretrain, DBN) and np.array_equal(again.predict_proba(X), net.predict_proba(X))


def test_a_regressor_may_be_pretrained_too(digits):
    X, _ = digits
    net = DropoutRegressor(pretrain=GaussianRBM(40, **SHORT), epochs=30, lr=0.5, dropout_hidden=0.2, random_state=0)
    assert net.fit(X[:600], X[:600, 20]).score(X[600:], X[600:, 20]) > 0.3


def test_layers_that_pretraining_overrules_are_named_in_a_warning(digits):
    X, y = (part[:60] for part in digits)
    with pytest.warns(UserWarning, match=r"hidden=\(9, 9\) is not used: .* pretrain, \(5, 4\)"):
        DropoutClassifier((9, 9), pretrain=DBN((5, 4), **SHORT), epochs=1, random_state=0).fit(X, y)
    for hidden in ((256,), (5, 4)):  # warnings are errors here
        DropoutClassifier(hidden, pretrain=DBN((5, 4), **SHORT), epochs=1, random_state=0).fit(X, y)


def test_what_cannot_be_pretrained_from_is_refused_in_one_line(digits):
    X, y = digits
    with pytest.raises(ValueError, match=r"'pretrain' parameter of DropoutClassifier must be None, a DBN.* Got DBM"):
        DropoutClassifier(pretrain=DBM((3, 3))).fit(X, y)
    with pytest.raises(ValueError, match=r"'hidden' parameter of DBM must be a pair of ints. Got 5 instead"):
        DBM(5).fit(X)
    with pytest.raises(ValueError, match="'lr' parameter of DBN must be None or a float"):
        DBN(lr=-1).fit(X)
    for other in (BernoulliRBM(lr=None), GaussianRBM(lr=None), DBM(lr=None)):
        with pytest.raises(ValueError, match=r"'lr' parameter of \w+ must be a float .* Got None instead"):
            other.fit(X)
    with pytest.raises(ValueError, match=r"'steps' parameter of DBN must be an int in the range \[1, 999\]"):
        DBN(steps=1000).fit(X)
    with pytest.raises(ValueError, match="X has 3 features, but there are 30 hidden units"):
        BernoulliRBM(30, **SHORT).fit(X).inverse_transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"'hidden' parameter of DBN must be .* Got \[\] instead"):
        DBN([]).fit(X)
    with pytest.raises(ValueError, match="Input contains NaN"):
        BernoulliRBM(30, **SHORT).fit(X).inverse_transform(np.full((2, 30), np.nan))


def test_counts_of_samples_steps_temperatures_and_particles_are_whole_and_large_enough(digits):
    X, _ = digits
    for found in (BernoulliRBM(5, **SHORT).fit(X), DBM((5, 4), joint_epochs=1, **SHORT).fit(X)):
        for wrong in (0, 2.5, "3", True, None):
            with pytest.raises(ValueError, match=r"n_samples must be an int in the range \[1, .*; got"):
                found.sample(wrong)
            with pytest.raises(ValueError, match="steps must be an int"):
                found.sample(2, steps=wrong)
            with pytest.raises(ValueError, match="temperatures must be an int"):
                found.log_partition(wrong)
            with pytest.raises(ValueError, match=r"particles must be an int in the range \[2, "):
                found.log_partition(10, 1 if wrong == 0 else wrong)
        assert found.sample(np.int64(2), np.int32(1)).shape == (2, 64)


def test_a_frozen_stack_must_have_been_fitted_to_the_same_inputs(digits):
    pandas = pytest.importorskip("pandas")
    X, y = digits[0][:50], digits[1][:50]
    frozen = FrozenEstimator(DBN((8,), **SHORT).fit(pandas.DataFrame(X).add_prefix("pixel")))
    with pytest.raises(ValueError, match="X has 3 features, but pretrain was fitted on 64"):
        DropoutClassifier(pretrain=frozen).fit(X[:, :3], y)
    with pytest.raises(ValueError, match="feature names should match those that pretrain was fitted on"):
        DropoutClassifier(pretrain=frozen).fit(pandas.DataFrame(X[:, ::-1]).add_prefix("other"), y)


@pytest.mark.parametrize("why", ["diverged", "interrupted"])
def test_a_fit_that_does_not_end_leaves_the_transformer_as_it_was(digits, why, monkeypatch):
    X, _ = digits
    found = BernoulliRBM(30, **SHORT).fit(X)
    before, history = found.transform(X), [*found.history_]
    if why == "diverged":
        found.set_params(lr=1e30)
        with pytest.raises(ValueError, match=r"pretraining diverged: .*; lower lr of the BernoulliRBM"):
            found.fit(np.hstack((X, X)) * 1e3)
    else:
        monkeypatch.setattr("meannet.estimators.transformer.Line.show", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            found.fit(np.hstack((X, X)))
    assert np.array_equal(found.transform(X), before) and found.history_ == history
