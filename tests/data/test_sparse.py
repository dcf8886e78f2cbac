"""Sparse inputs against SciPy's dense rows, and nets trained on them against nets trained on the same inputs dense."""

import copy

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from meannet import data, evaluate, fast
from meannet.data.sparse import Sparse
from meannet.fast import cpu
from meannet.nn.dense import initial_fleet

CASES, INPUTS, CLASSES = 57, 90, 4


@pytest.fixture
def matrix() -> csr_array:
    random = np.random.default_rng(3)
    dense = random.random((CASES, INPUTS), np.float32) * (random.random((CASES, INPUTS)) < 0.1)
    dense[[5, 20]] = 0  # documents without any of the words
    return csr_array(dense)


def test_rows_are_those_of_scipy_in_any_order_and_shape(matrix):
    sparse, dense = Sparse.of(matrix), torch.from_numpy(matrix.toarray())
    chosen = torch.tensor([[5, 3, 3, 56], [0, 20, 5, 1]])
    assert torch.equal(sparse[chosen], dense[chosen])
    assert torch.equal(sparse[torch.arange(CASES)], dense)
    assert sparse[torch.tensor([], dtype=torch.int64)].shape == (0, INPUTS)
    assert torch.equal(sparse[torch.tensor([[5]])], torch.zeros(1, 1, INPUTS))
    assert len(sparse) == CASES and sparse.to("cpu").shape == (CASES, INPUTS)
    some = sparse.first(21)
    assert torch.equal(some[torch.arange(21)], dense[:21]) and len(some) == 21


def test_the_digest_is_of_the_zeros_places_too(matrix):
    targets = torch.zeros(CASES, dtype=torch.int64)
    moved = matrix.copy()
    moved.indices[0] = (set(range(INPUTS)) - set(moved.indices[: moved.indptr[1]].tolist())).pop()
    cases = [data.Cases(Sparse.of(one), targets) for one in (matrix, moved, matrix[:, : INPUTS - 1])]
    cases.append(data.Cases(torch.from_numpy(matrix.toarray()), targets))
    assert len({data.digest(one, one) for one in cases}) == 4


@pytest.mark.parametrize("path", ["plain", "fast"])
def test_training_on_sparse_inputs_is_training_on_the_same_inputs_dense(matrix, path, monkeypatch):
    if path == "fast" and cpu.library() is None:
        pytest.skip("the CPU kernel was not built")
    monkeypatch.setattr(cpu, "FLOATS_A_CALL", 5 * 2 * INPUTS * 10)  # five updates a call, and a shorter call at the end
    rates = [torch.tensor([[rate], [rate]], dtype=torch.float64) for rate in (0.2, 0.5)]
    first = initial_fleet((INPUTS, 32, CLASSES), (1, 2), rates, units="logistic", sd=0.3)
    sparse, targets = Sparse.of(matrix), torch.arange(CASES) % CLASSES
    dense = torch.from_numpy(matrix.toarray())
    trained = []
    for inputs in (sparse, dense):
        fleet = copy.deepcopy(first)
        engine = fast.engine(fleet, inputs, targets, 10, [2.0, 3.0], path)
        assert engine.name == path
        tallies = [engine.epoch(epoch, [1.0, 0.5], 0.9, lambda: False) for epoch in range(3)]
        trained.append((fleet, [(t.loss, t.errors) for t in tallies if t]))
    for ours, theirs in zip(trained[0][0].state().values(), trained[1][0].state().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert all(
        torch.equal(a, b)
        for one, two in zip(trained[0][1], trained[1][1], strict=True)
        for a, b in zip(one, two, strict=True)
    )
    figures = [evaluate.mean_network_figures(trained[0][0], inputs, targets) for inputs in (sparse, dense)]
    assert figures[0] == figures[1]
    sampled = [evaluate.sampled_errors(trained[0][0], inputs, targets, [1, 3]) for inputs in (sparse, dense)]
    assert sampled[0] == sampled[1]
