"""States of units: as probable as asked, the same from every version, and of a net's own."""

import numpy as np
import pytest
import torch

from meannet.core.philox import GIBBS, uniform16
from meannet.pretrain import draws as module
from meannet.pretrain.draws import Draws

SEEDS = torch.tensor([0, 7, 1 << 40 | 3])


def probabilities(nets=3, cases=5, units=70, dtype=torch.float32):
    return torch.rand(nets, cases, units, generator=torch.Generator().manual_seed(1), dtype=dtype)


def by_hand(p, stage, update, place):
    word = uniform16(SEEDS, GIBBS, stage << 16 | place, update, range(p.shape[1]), p.shape[2]).int() + 32768
    return (word < (p.double() * 65536).round()).to(p.dtype)


def test_states_are_draws_below_probabilities_and_the_compiled_version_draws_the_same(monkeypatch):
    p = probabilities()
    one, other = Draws(SEEDS, 2, 9), Draws(SEEDS, 2, 9)
    fast = [one.on(p), one.on(p)]
    monkeypatch.setattr(module, "library", lambda: None)
    plain = [other.on(p), other.on(p)]
    for place in (0, 1):
        assert fast[place].equal(plain[place]) and plain[place].equal(by_hand(p, 2, 9, place))
    assert not plain[0].equal(plain[1])


@pytest.mark.parametrize("above", [0.0, 0.5, 1.0])  # of the draw's own level, in 65536ths
def test_the_compiled_version_draws_the_same_where_a_probability_is_at_the_draw_itself(above, monkeypatch):
    update = (1 << 32) - 1
    draws = uniform16(SEEDS, 0, GIBBS << 24 | 255 << 16, update, range(64), 70)
    p = (draws.float() + 32768 + above) / 65536
    beside = [p.nextafter(torch.tensor(side)).clamp(0, 1) for side in (-1.0, 2.0)]
    fast = [Draws(SEEDS, 255, update).on(each) for each in (p, *beside)]
    monkeypatch.setattr(module, "library", lambda: None)
    for found, each in zip(fast, (p, *beside), strict=True):
        assert found.equal(Draws(SEEDS, 255, update).on(each))
    assert fast[0].mean() == (above == 1.0)


def test_the_kernel_of_the_gpu_draws_the_same():
    pytest.importorskip("triton", reason="Triton is not installed")
    where = "cuda" if torch.cuda.is_available() else "cpu"
    p, update = probabilities().to(where), torch.tensor([9], device=where)
    states = module.launched(p, SEEDS.to(where), update, GIBBS << 24 | 2 << 16 | 1)
    assert states.cpu().equal(by_hand(p.cpu(), 2, 9, 1))
    one = module.launched_draws(200, SEEDS.to(where), update, GIBBS << 24 | 2 << 16 | 1)
    assert one.cpu().equal(uniform16(SEEDS, GIBBS, 2 << 16 | 1, 9, range(200), 8)[..., :1])


def test_a_states_bits_do_not_depend_on_companions_or_on_the_size_of_the_batch():
    p = probabilities()
    alone = Draws(SEEDS[1:2], 0, 4).on(p[1:2, :3])
    assert Draws(SEEDS, 0, 4).on(p)[1:2, :3].equal(alone)
    assert not Draws(SEEDS, 1, 4).on(p).equal(Draws(SEEDS, 0, 4).on(p))
    assert not Draws(SEEDS, 0, 5).on(p).equal(Draws(SEEDS, 0, 4).on(p))


def test_an_update_cannot_draw_in_the_place_of_the_next_stage():
    p = probabilities()
    last = Draws(SEEDS, 0, 0, taken=module.PLACES - 1)
    last.on(p)
    for draw in (lambda: last.on(p), lambda: last.one_of(p), lambda: last.around(p), last.next):
        with pytest.raises(ValueError, match="an update has 65536 draws of states and no more"):
            draw()


def test_certain_states_are_certain_and_others_as_frequent_as_asked():
    p = torch.tensor([0.0, 1.0, 0.3, 0.99]).repeat(3, 1500, 50)
    share = Draws(SEEDS, 0, 0).on(p).view(3, -1, 4).mean(1).double()
    assert (share[:, 0] == 0).all() and (share[:, 1] == 1).all()
    torch.testing.assert_close(share[:, 2:], torch.tensor([[0.3, 0.99]] * 3, dtype=torch.float64), atol=0.008, rtol=0)


def test_one_unit_of_a_softmax_is_on_as_often_as_its_probability_says():
    totals = torch.tensor([0.0, 1.0, -2.0, 0.5], dtype=torch.float64).expand(3, 20000, 4)
    states = Draws(SEEDS, 0, 0).one_of(totals)
    assert (states.sum(-1) == 1).all()
    np.testing.assert_allclose(states.mean(1), totals[:, 0].softmax(-1), atol=0.012)


def test_normal_states_have_their_means_and_variance_one():
    means = torch.tensor([0.0, 3.0, -1.0], dtype=torch.float64).expand(3, 20000, 3)
    states = Draws(SEEDS, 0, 0).around(means)
    np.testing.assert_allclose(states.mean(1), means[:, 0], atol=0.03)
    np.testing.assert_allclose(states.var(1), 1, atol=0.04)
