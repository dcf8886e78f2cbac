"""Weights of cases and classes, the order of rows, sparse inputs, scaling: against copies, numpy and autograd."""

import numpy as np
import pytest
import torch
from estimator_toys import classifier, regressor, table
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from meannet.config import Optim
from meannet.estimators import cases
from meannet.estimators.cases import Scaling, SparseRows, arrange
from meannet.plain import Standardise

X, Y = table()
WHOLE = np.random.RandomState(1).randint(0, 4, len(X)).astype(float)
EVERY = np.arange(len(X))


def probabilities(y=Y, x=X, weights=None, **more):
    return classifier(**more).fit(x, y, sample_weight=weights).predict_proba(X)


def test_whole_number_weights_are_copies_to_the_last_bit():
    copies = np.repeat(EVERY, WHOLE.astype(int))
    found, expected = probabilities(weights=WHOLE), probabilities(Y[copies], X[copies])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_other_weights_multiply_the_loss(make):
    """Half weights cannot be copies; without dropout and with all cases in a batch the two must agree."""
    more = {"dropout_hidden": 0.0, "batch": 10_000, "epochs": 30}
    y = Y if make is classifier else X[:, 0]
    kept = WHOLE > 0
    copies = np.repeat(EVERY, WHOLE.astype(int))
    weighted = make(**more).fit(X[kept], y[kept], sample_weight=WHOLE[kept] / 2)
    repeated = make(**more).fit(X[copies], y[copies])
    plain = make(**more).fit(X[kept], y[kept])
    for a, b, c in zip(weighted._fleet.weights, repeated._fleet.weights, plain._fleet.weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
        assert (a - b).norm() < 1e-2 * (a - c).norm()


def test_a_weighted_step_is_the_gradient_of_the_weighted_mean_loss():
    weights = np.linspace(0.1, 2.7, len(X))
    more = {"dropout_hidden": 0.0, "batch": 10_000, "hidden": (4,), "momentum": (0.0, 0.0), "limit": np.inf}
    before = classifier(**more, epochs=1, lr=1e-12).fit(X, Y, sample_weight=weights)
    after = classifier(**more, epochs=1, lr=0.05, lr_end=1.0).fit(X, Y, sample_weight=weights)
    share = weights / weights.sum()
    mean = share @ X
    z = (X - mean) / np.sqrt(share @ (X - mean) ** 2)
    inputs = torch.tensor(z / np.sqrt(1 + z**2 / 9))
    free = [t[0].double().requires_grad_() for k in (0, 1) for t in (before._fleet.weights[k], before._fleet.biases[k])]
    outputs = torch.relu(inputs @ free[0].T + free[1]) @ free[2].T + free[3]
    losses = torch.nn.functional.cross_entropy(outputs, torch.tensor(Y), reduction="none")
    (losses * torch.tensor(share)).sum().backward()
    for weight, new in zip(free[::2], after._fleet.weights, strict=True):
        torch.testing.assert_close(new[0].double(), (weight - 0.05 * weight.grad).detach(), rtol=1e-4, atol=1e-6)


def test_balanced_classes_weigh_the_same_in_all():
    y = (Y > 0).astype(int)
    counts = np.bincount(y)
    by_hand = {c: len(y) / (2 * counts[c]) for c in (0, 1)}
    np.testing.assert_allclose(
        probabilities(y, class_weight="balanced"), probabilities(y, class_weight=by_hand), rtol=1e-5
    )
    weights = np.linspace(0.5, 1.5, len(y))
    sums = np.bincount(y, weights)
    by_hand = weights * (sums.sum() / (2 * sums))[y]
    np.testing.assert_allclose(
        probabilities(y, weights=weights, class_weight="balanced"), probabilities(y, weights=by_hand), rtol=1e-5
    )


def test_the_order_of_rows_does_not_matter():
    mixed = np.random.RandomState(0).permutation(len(X))
    np.testing.assert_array_equal(probabilities(), probabilities(Y[mixed], X[mixed]))
    weights = np.linspace(0.1, 3, len(X))
    np.testing.assert_array_equal(
        probabilities(weights=weights), probabilities(Y[mixed], X[mixed], weights=weights[mixed])
    )


def test_the_layout_in_memory_does_not_matter():
    there = np.asfortranarray(X)
    fitted = classifier().fit(there, Y)
    np.testing.assert_array_equal(fitted.predict_proba(there), probabilities())


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
def test_sparse_inputs_train_the_nets_that_dense_ones_do(form):
    counts = np.random.RandomState(0).poisson(0.4, (40, 9)).astype(np.float32)
    dense = classifier(standardize=False).fit(counts, Y)
    thin = classifier(standardize=False).fit(form(counts), Y)
    np.testing.assert_allclose(thin.predict_proba(counts), dense.predict_proba(counts), rtol=1e-4)
    np.testing.assert_array_equal(thin.predict_proba(form(counts)), thin.predict_proba(counts))
    np.testing.assert_array_equal(thin.sample_proba(form(counts), 2), thin.sample_proba(counts, 2))


def test_sparse_inputs_are_scaled_by_their_standard_deviation_and_not_shifted():
    counts = np.random.RandomState(0).poisson(0.4, (40, 9)) * 10.0 ** np.arange(9)
    found = Scaling.of(sparse.csr_array(counts), np.arange(40), None)
    np.testing.assert_allclose(found.scale, counts.std(0), rtol=1e-12)
    assert not found.mean.any()
    whole = {"batch": 40, "dropout_hidden": 0.0}  # the order of cases then does not count
    drawn_in = counts / counts.std(0) / np.sqrt(1 + (counts / counts.std(0)) ** 2 / 9)
    scaled = classifier(standardize=False, **whole).fit(sparse.csr_array(drawn_in), Y)
    raw = classifier(**whole).fit(sparse.csr_array(counts), Y)
    np.testing.assert_allclose(raw.predict_proba(counts), scaled.predict_proba(drawn_in), rtol=1e-4, atol=1e-6)


def test_no_sparse_matrix_is_made_dense_whole(monkeypatch):
    heights = []
    whole = sparse.csr_matrix.toarray

    def toarray(self, *arguments, **more):
        heights.append(self.shape[0])
        return whole(self, *arguments, **more)

    monkeypatch.setattr(sparse.csr_matrix, "toarray", toarray)
    monkeypatch.setattr(cases, "CHUNK_FLOATS", 10 * 50)
    wide = sparse.random(60, 50, 0.1, format="csr", random_state=0)
    fitted = classifier(batch=8, early_stopping=True).fit(wide, np.arange(60) % 3)
    fitted.predict(wide)
    fitted.sample_proba(wide, 2)
    assert heights and max(heights) <= 10


def test_scaling_is_that_of_scikit_learn_on_any_scale():
    found = Scaling.of(X, EVERY, None)
    np.testing.assert_allclose(found.apply(X), StandardScaler().fit_transform(X), rtol=1e-9)
    huge = np.array([[1e300, -1e-300, 5.0], [-1e300, 1e-300, 5.0], [0.0, 0.0, 5.0]])
    scaled = Scaling.of(huge, np.arange(3), None).apply(huge)
    np.testing.assert_allclose(scaled[:, 0], [np.sqrt(1.5), -np.sqrt(1.5), 0])
    np.testing.assert_allclose(scaled[:, 1], [-np.sqrt(1.5), np.sqrt(1.5), 0])
    assert not scaled[:, 2].any()


def test_outliers_come_no_further_than_the_reach_and_what_is_near_stays():
    scaling = Scaling(np.array([1.0]), np.array([2.0]), reach=3.0)
    z = np.array([0.0, 0.01, -1.0, 3.0, -30.0, 1e300])
    found = scaling.apply(1 + 2 * z[:, None])[:, 0]
    np.testing.assert_allclose(found, [0, 0.01, -0.9486832981, 2.1213203436, -2.9851115706, 3], atol=1e-6)
    np.testing.assert_allclose(
        Standardise(torch.ones(1).double(), 2 * torch.ones(1).double(), 3.0)(torch.tensor(1 + 2 * z[:, None]))[:, 0],
        found,
        rtol=1e-12,
    )


def test_weighted_scaling_is_that_of_copies():
    copies = np.repeat(EVERY, WHOLE.astype(int))
    kept = WHOLE > 0
    weighted = Scaling.of(X[kept], np.arange(kept.sum()), WHOLE[kept])
    repeated = Scaling.of(X[copies], np.arange(len(copies)), None)
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-12)
    np.testing.assert_allclose(weighted.scale, repeated.scale, rtol=1e-12)


def test_sparse_and_dense_cases_come_in_the_same_order():
    counts = np.random.RandomState(0).poisson(0.4, (200, 9)).astype(float)
    targets = np.arange(200)
    order, none = arrange(counts, targets, None, normalise=True)
    assert none is None and sorted(order) == list(range(200)) and (order != np.arange(200)).any()
    np.testing.assert_array_equal(order, arrange(sparse.csr_array(counts), targets, None, normalise=True)[0])
    np.testing.assert_array_equal(order, arrange(-0.0 + counts, targets, np.ones(200), normalise=True)[0])


def test_large_whole_weights_are_not_made_into_copies():
    rows, weights = arrange(X, Y, np.linspace(1e5, 2e5, len(X)).round(), normalise=True)
    assert len(rows) == len(X) and weights.mean() == pytest.approx(1)


def test_sparse_rows_give_what_indexing_a_dense_tensor_gives():
    counts = np.random.RandomState(0).poisson(0.4, (20, 9)).astype(np.float32)
    rows = np.array([3, 3, 7, 1, 0])
    made = SparseRows(sparse.csr_matrix(counts), rows, Scaling.none(9), torch.device("cpu"))
    chosen = torch.tensor([[0, 4, 2], [1, 1, 3]])
    assert len(made) == 5 and made[chosen].equal(torch.from_numpy(counts[rows])[chosen])


def test_an_optim_of_the_estimator_falls_to_its_last_learning_rate():
    made = classifier(lr=0.5, lr_end=0.01, epochs=10)._optim(100, 6, False)
    assert isinstance(made, Optim) and made.lr * made.decay**made.epochs == pytest.approx(0.005)


def test_the_learning_rate_of_regression_falls_with_what_the_last_hidden_layer_passes_on():
    def lr(**more):
        return regressor(**{"lr": "auto"} | more)._optim(100, 400, False).lr

    assert lr(hidden=100) == lr(hidden=(9000, 100)) == 0.05
    assert lr(hidden=2000) == pytest.approx(2 * lr(hidden=4000), rel=0.01) == pytest.approx(10 / 1500, rel=0.01)
    assert lr(hidden=2000, dropout_hidden=0.0) == pytest.approx(10 / 3000, rel=0.01)
    assert lr(hidden=()) == pytest.approx(10 / 401)
    assert classifier(lr="auto")._optim(100, 400, False).lr == 0.5
