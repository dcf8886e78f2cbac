"""Learning rate and momentum, read off epoch by epoch as A.1's text gives them."""

import pytest

from meannet.core.schedule import learning_rate, momentum

A1 = {"start": 0.5, "end": 0.99, "ramp": 500}


@pytest.mark.parametrize(
    ("epoch", "value"),
    [(0, 0.5), (1, 0.50098), (125, 0.6225), (250, 0.745), (499, 0.98902), (500, 0.99), (501, 0.99), (2999, 0.99)],
)
def test_momentum_rises_from_a_half_to_0_99_over_500_epochs(epoch, value):
    assert momentum(epoch, **A1) == pytest.approx(value, rel=1e-12)


def test_momentum_never_falls():
    values = [momentum(epoch, **A1) for epoch in range(3000)]
    assert values == sorted(values)


def test_momentum_without_a_ramp_is_its_end_at_once():
    assert momentum(0, start=0.5, end=0.9, ramp=0) == 0.9


@pytest.mark.parametrize(
    ("epoch", "value"), [(0, 10.0), (1, 9.98), (2, 9.96004), (1000, 10 * 0.1350645224), (2999, 10 * 0.998**2999)]
)
def test_learning_rate_starts_at_10_and_decays_by_0_998_an_epoch(epoch, value):
    assert learning_rate(epoch, start=10.0, decay=0.998) == pytest.approx(value, rel=1e-9)


def test_learning_rate_equals_a_running_product():
    running = 10.0
    for epoch in range(3000):
        assert learning_rate(epoch, start=10.0, decay=0.998) == pytest.approx(running, rel=1e-10)
        running *= 0.998


def test_learning_rate_is_divided_by_ten_from_each_cut_on():
    values = [learning_rate(epoch, start=0.1, cuts=(3, 5)) for epoch in range(7)]
    assert values == pytest.approx([0.1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001], rel=1e-12)


def test_decay_and_cuts_multiply():
    assert learning_rate(4, start=2.0, decay=0.5, cuts=(1, 4)) == pytest.approx(2 * 0.5**4 / 100, rel=1e-12)


def test_without_decay_and_cuts_the_learning_rate_stays():
    assert {learning_rate(epoch, start=0.3) for epoch in range(100)} == {0.3}
