"""The Triton kernel that finds best paths, against the plain version: on a GPU, else through Triton's interpreter."""

import numpy as np
import pytest
import torch

from meannet.speech import viterbi

pytest.importorskip("triton", reason="Triton is not installed: the fast path has nothing to run on")

from meannet.fast import viterbi as fast

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def made_up(states_of, seed):
    draw = np.random.default_rng(seed)
    n = len(states_of)
    rows = np.log(draw.dirichlet(np.ones(n + 1), n + 1))
    rows[draw.random(rows.shape) < 0.2] = -np.inf
    stay = np.log(draw.uniform(0.1, 0.9, sum(states_of)))
    parts = (torch.from_numpy(part).float().to(DEVICE) for part in (stay, rows[-1, :-1], rows[:-1, :-1], rows[:-1, -1]))
    return viterbi.one_graph(states_of, *parts)


@pytest.mark.parametrize("states_of", [(3,), (1, 2, 3, 4, 5), (3,) * 20 + (5,) + (3,) * 40], ids=len)
def test_the_kernel_finds_the_very_paths_of_the_plain_version(states_of):
    lengths = [9, 30, 17] if len(states_of) > 5 else [12, 31, 5, 7, 31]
    emissions = torch.randn(len(lengths), 31, sum(states_of), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    graph = made_up(states_of, 3)
    ours, plain = fast.best_paths(emissions, lengths, graph), viterbi.plain_best_paths(emissions, lengths, graph)
    assert plain.scores.isfinite().all() and torch.equal(ours.scores, plain.scores)
    assert torch.equal(ours.states, plain.states) and torch.equal(ours.begins, plain.begins)


def test_each_utterance_can_have_a_graph_of_its_own():
    graphs = [made_up((2, 3, 1), seed) for seed in (0, 4)]
    both = viterbi.Graph(**{name: torch.cat([getattr(graph, name) for graph in graphs]) for name in vars(graphs[0])})
    emissions = torch.randn(2, 20, 6, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    together = fast.best_paths(emissions, [20, 13], both)
    for k, graph in enumerate(graphs):
        alone = viterbi.plain_best_paths(emissions[k : k + 1], [20, 13][k : k + 1], graph)
        assert torch.equal(together.states[k], alone.states[0]) and together.scores[k] == alone.scores[0]
