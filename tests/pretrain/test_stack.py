"""Stacks: layers learn, resuming is exact, seeds are their own, and the unrolled nets compute what the machines do."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from meannet import fast
from meannet.config import Joint, Pretrain
from meannet.core import philox
from meannet.data import Cases, Dataset
from meannet.nn import dense
from meannet.nn.own import OwnInputs
from meannet.pretrain import dbm, rbm, stack, stages, unrolled
from meannet.pretrain import draws as draws_module
from meannet.pretrain.divergence import contrastive_divergence_
from meannet.pretrain.draws import Draws
from meannet.pretrain.loop import Rates, Updates
from meannet.train import Plain

DBN = Pretrain(epochs=(3, 2), batch=20, softmax_epochs=2, gibbs=3, sample_inputs=True)
DBM = replace(DBN, model="dbm", labels=True, steps_every=(0, 1), joint=Joint(epochs=3, lr=0.01, sweeps=5, chains=7))
PCD = replace(DBN, persistent=True, data_biases="upper", steps=2)
GAUSSIAN = replace(DBN, visible="gaussian", data_biases="all", rule="a1", sudden=False, lr=(0.01, 0.1))
EVERY = pytest.mark.parametrize("settings", [DBN, DBM, PCD, GAUSSIAN], ids=["dbn", "dbm", "pcd", "gaussian"])
SIZES = (12, 7, 5)


def cases(count=50):
    """Pictures of bars: half of the pixels on, and noise."""
    drawn = np.random.default_rng(0)
    targets = drawn.integers(0, 3, count)
    inputs = (np.arange(12)[None] // 4 == targets[:, None]) ^ (drawn.random((count, 12)) < 0.05)
    return torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(targets)


def trained(settings, seeds=(0, 5), **more):
    made = stack.new_stack(settings, SIZES, 3, seeds)
    return made, list(stages.pretrain(made, *cases(), **more))


def stopping_after(updates):
    asked = iter(range(10**6))
    return lambda: next(asked) >= updates


@EVERY
def test_every_stage_runs_its_epochs_and_reconstructions_get_better(settings):
    made, done = trained(settings)
    assert made.finished
    assert [(d.stage.number, d.epoch) for d in done] == [
        (one.number, epoch + 1) for one in made.stages for epoch in range(one.epochs)
    ]
    first = [d.values for d in done if d.stage.number == 0]
    assert all(last < start for start, last in zip(first[0], first[-1], strict=True))


@EVERY
@pytest.mark.parametrize("updates", [2, 4, 10, 14, 16, 20])
def test_stopping_anywhere_and_going_on_gives_the_same_bits(settings, updates):
    whole, every = trained(settings)
    halfway, before = trained(settings, stop=stopping_after(updates))
    state = {name: tensor.clone() for name, tensor in halfway.state().items()}
    again = stack.new_stack(settings, SIZES, 3, (0, 5))
    if state:
        again.restore(state, halfway.stage, halfway.epoch)
    after = list(stages.pretrain(again, *cases()))
    assert [(d.stage.number, d.epoch, d.values) for d in before + after] == [
        (d.stage.number, d.epoch, d.values) for d in every
    ]
    assert again.state().keys() == whole.state().keys()
    assert all(tensor.equal(whole.state()[name]) for name, tensor in again.state().items())
    assert stack.samples(again, cases()[0], 4).equal(stack.samples(whole, cases()[0], 4))


@EVERY
def test_a_seed_is_pretrained_as_it_would_be_alone(settings):
    together, alone = trained(settings)[0], trained(settings, seeds=(5,))[0]
    for name, tensor in alone.state().items():
        torch.testing.assert_close(together.state()[name][1:], tensor, rtol=1e-4, atol=1e-5)


@EVERY
def test_updates_that_count_for_themselves_as_in_a_graph_are_the_eager_ones(settings, monkeypatch):
    """What is captured on a GPU, run here without a graph."""
    expected, _ = trained(settings)

    monkeypatch.setattr(Updates, "_eager", lambda self, start, size, number, steps: self._launch(size, steps))
    found, _ = trained(settings)
    assert all(tensor.equal(expected.state()[name]) for name, tensor in found.state().items())


class NothingFromTheHost(TorchDispatchMode):
    """Refuses what cannot be captured: a look at a value, numbers of the host, sizes that depend on data."""

    REFUSED = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "is_nonzero", "equal")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function.overloadpacket.__name__ not in self.REFUSED, function
        return function(*args, **(kwargs or {}))


@EVERY
def test_an_update_looks_at_no_value_and_takes_none_from_the_host(settings, monkeypatch):
    monkeypatch.setattr(draws_module, "library", lambda: None)
    looked = []

    def launch(self, start, size, number, steps):
        with NothingFromTheHost():
            self._launch(size, steps)
        looked.append(self.stage)

    monkeypatch.setattr(Updates, "_eager", launch)
    made, _ = trained(settings)
    assert set(looked) == {one.number for one in made.stages if one.kind != "softmax"}
    with pytest.raises(AssertionError), NothingFromTheHost():
        torch.ones(1).item()
    with pytest.raises(AssertionError), NothingFromTheHost():
        torch.tensor(3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@EVERY
def test_graphs_on_a_gpu_train_as_the_cpu_does(settings):
    expected, _ = trained(settings)
    inputs, targets = cases()
    made = stack.new_stack(settings, SIZES, 3, (0, 5), "cuda")
    done = list(stages.pretrain(made, inputs.cuda(), targets.cuda()))
    assert made.finished and len(done) == sum(one.epochs for one in made.stages)
    for name, tensor in expected.state().items():
        if "chains" not in name:  # a state on the edge may fall to either side
            torch.testing.assert_close(made.state()[name].cpu(), tensor, rtol=0.2, atol=0.05)


def test_rates_follow_the_schedules():
    one = stack.new_stack(DBM, SIZES, 3, [0]).stages
    growing = [
        stages._layer_rates(replace(DBM, steps_every=(0, 2), lr=(0.1, 0.6)), one[1], epoch) for epoch in range(5)
    ]
    assert [rate.steps for rate in growing] == [1, 1, 2, 2, 3]
    assert [rate.step for rate in growing] == pytest.approx([0.6, 0.6, 0.3, 0.3, 0.2])
    sudden = [stages._layer_rates(DBN, one[0], epoch).momentum for epoch in (0, 4, 5, 6)]
    assert sudden == [0.5, 0.5, 0.9, 0.9]
    b1 = replace(DBN, rule="a1", momentum_epochs=20, sudden=False, lr=(0.001,))
    assert stages._layer_rates(b1, one[0], 10) == Rates(pytest.approx(0.001 * 0.3), pytest.approx(0.7), 1)
    joint = replace(DBM, joint=Joint(lr=0.001, lr_decay=0.5, lr_least=0.0003))
    assert [stages._joint_rates(joint, one[2], epoch).step for epoch in range(3)] == pytest.approx(
        [0.001, 0.0005, 0.0003]
    )


def test_a_layer_learns_from_what_the_layers_below_make_of_the_cases():
    settings = replace(DBN, sample_inputs=False, softmax_epochs=0, epochs=(1,), data_biases="upper")
    made, _ = trained(settings, seeds=(3,))
    first, second = made.layers
    inputs, _ = cases()
    features = rbm.hidden_means(first, inputs[None])
    by_hand = rbm.initial_rbm(7, 5, [3], layer=1, sd=0.1)
    rbm.data_biases_(by_hand, features.mean(1), 50)
    order = philox.order(made.seeds, 0, 50, 2)[0]
    for number, chosen in enumerate(order.split(20)):
        contrastive_divergence_(
            by_hand,
            features[:, chosen],
            Draws(made.seeds, 1, number),
            step=torch.tensor(0.1),
            momentum=torch.tensor(0.5),
            decay=0.0002,
        )
    torch.testing.assert_close(second.weights, by_hand.weights, rtol=1e-5, atol=1e-6)


def mini_batches(made, stage):
    """Each mini-batch of a stage's first epoch: its draws, inputs, sampled binary, and labels, one-hot."""
    (inputs, targets), order = cases(), philox.order(made.seeds, 0, 50, stage + 1)[0]
    for number, chosen in enumerate(order.split(20)):
        draws = Draws(made.seeds, stage, number)
        yield draws, draws.on(inputs[chosen][None]), torch.eye(3)[targets[chosen]][None]


PACE = {"step": torch.tensor(0.1), "momentum": torch.tensor(0.5)}


def test_persistent_chains_and_sampled_inputs_reach_the_update_of_a_layer():
    made, _ = trained(replace(PCD, epochs=(1,), softmax_epochs=0, data_biases="none"), seeds=(3,))
    by_hand = rbm.initial_rbm(12, 7, [3], layer=0, sd=0.1)
    chains = rbm.sample_visible(by_hand, torch.zeros(1, 20, 7), Draws(made.seeds, 128, 0))
    for draws, inputs, _ in mini_batches(made, 0):
        contrastive_divergence_(by_hand, inputs, draws, decay=0.0002, steps=2, chains=chains, **PACE)
    torch.testing.assert_close(made.layers[0].weights, by_hand.weights, rtol=1e-5, atol=1e-6)
    assert made.layers[0].chains.equal(chains)


def test_doubled_inputs_labels_and_the_joint_settings_reach_the_updates_of_a_boltzmann_machine():
    joint = Joint(
        epochs=1, lr=0.1, sweeps=2, chains=7, decay=0.03, cost=0.05, targets=(0.4, 0.1), steps=2, states="samples"
    )
    settings = replace(DBM, epochs=(1,), steps=2, states="samples", joint=joint, softmax_epochs=0)
    made, _ = trained(replace(settings, steps_every=(0,)), seeds=(3,))
    first = rbm.initial_rbm(12, 7, [3], layer=0, sd=0.1, up=2.0)
    for draws, inputs, _ in mini_batches(made, 0):
        contrastive_divergence_(first, inputs, draws, decay=0.0002, steps=2, states="samples", **PACE)
    second = rbm.initial_rbm(7 + 3, 5, [3], layer=1, labels=3, sd=0.1, down=2.0)
    for draws, inputs, labels in mini_batches(made, 1):
        below = draws.on(torch.sigmoid(2 * (inputs @ first.weights.mT) + 2 * first.hidden_biases[:, None]))
        visible = torch.cat((below, labels), -1)
        contrastive_divergence_(second, visible, draws, decay=0.0002, steps=2, states="samples", **PACE)
    by_hand = dbm.composed(first, second, 7, 2, (0.4, 0.1))
    more = {"decay": 0.03, "sweeps": 2, "steps": 2, "states": "samples", "targets": (0.4, 0.1), "cost": 0.05}
    for draws, inputs, labels in mini_batches(made, 2):
        dbm.joint_update_(by_hand, inputs, labels, draws, **more, **PACE)
    for trained_one, own in zip((*made.layers, made.dbm.folded), (first, second, by_hand.folded), strict=True):
        torch.testing.assert_close(trained_one.weights, own.weights, rtol=1e-4, atol=1e-5)
    assert made.dbm.chains.equal(by_hand.chains)


def fleet_of(made, arms, inputs):
    nets = arms * len(made.seeds)
    rates = [torch.tensor([[0.0], [0.0], [0.2], [0.2]]), *[torch.tensor([[0.0], [0.0], [0.5], [0.5]])] * 2]
    fleet = dense.initial_fleet((inputs, *SIZES[1:], 3), made.seeds.tolist() * arms, rates, units="logistic")
    assert len(fleet.seeds) == nets
    unrolled.install_(fleet, made, scale_up=True)
    return fleet


def test_the_unrolled_belief_net_computes_the_stacks_features_and_scaled_weights_make_its_mean_network_the_same():
    made, _ = trained(DBN)
    inputs, _ = cases()
    fleet = fleet_of(made, 2, 12)
    passed = dense.activities(fleet, inputs[None], [None] * 3)
    torch.testing.assert_close(passed[2][:2], stack.features(made, inputs[None], 2))
    mean = dense.mean_network(fleet, inputs[None])
    torch.testing.assert_close(mean[2:], mean[:2], rtol=1e-4, atol=1e-5)
    outputs = stack.top_means(made, inputs[None]) @ made.softmax.weights[0].mT + made.softmax.biases[0][:, None]
    torch.testing.assert_close(mean[:2], outputs, rtol=1e-4, atol=1e-5)


def test_the_unrolled_boltzmann_machine_goes_on_with_mean_field_where_its_extra_inputs_end():
    made, _ = trained(DBM)
    inputs, targets = cases()
    dataset = Dataset("bars", Cases(inputs, targets), Cases(inputs[:9], targets[:9]), tuple("abc"), None, "")
    found = unrolled.seen(made, dataset, arms=2)
    assert found.train.inputs.shape == (50, 17) and len(found.test.inputs) == 9
    fleet = fleet_of(made, 2, 17)
    everyone = torch.arange(50).expand(4, -1)
    passed = dense.activities(fleet, found.train.inputs[everyone], [None] * 3)
    first, second = dbm.mean_field(made.dbm, inputs[None], sweeps=DBM.joint.sweeps + 1)
    torch.testing.assert_close(passed[1][:2], first, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(passed[2][:2], second, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(passed[0][1, :, 12:], dbm.mean_field(made.dbm, inputs[None], sweeps=5)[1][1])


@pytest.mark.filterwarnings("ignore:divide by zero")  # of a bound by a length of zero, which is then not taken
@pytest.mark.parametrize("path", ["plain", "fast", "kernels of the GPU"])
def test_nets_that_see_their_own_inputs_train_as_each_would_alone(path):
    if path == "fast" and fast.why_not_fast(
        dense.initial_fleet((4, 3, 2), [0], [torch.zeros(1, 1)] * 2, units="logistic")
    ):
        pytest.skip("the kernel was not built")
    where = "cuda" if path == "kernels of the GPU" and torch.cuda.is_available() else "cpu"  # else Triton interprets
    versions = torch.rand(2, 30, 6, generator=torch.Generator().manual_seed(0))
    targets, which = torch.arange(30) % 3, torch.tensor([1, 0, 1])
    rates = [torch.full((3, 1), rate) for rate in (0.2, 0.5)]

    def fleet(nets, device):
        seeds, own_rates = [[4, 5, 6][n] for n in nets], [rate[nets].to(device) for rate in rates]
        return dense.initial_fleet((6, 5, 3), seeds, own_rates, units="logistic", sd=0.5, device=device)

    together = fleet([0, 1, 2], where)
    own = OwnInputs(versions.to(where), which.to(where))
    if path == "kernels of the GPU":
        pytest.importorskip("triton", reason="Triton is not installed")
        from meannet.fast.cuda import Captured

        engine = Captured(together, own, targets.to(where), 10, [15.0] * 3, "float32")
    else:
        engine = fast.engine(together, own, targets, 10, [15.0] * 3, path)
        assert engine.name == path
    engine.epoch(0, [0.5] * 3, 0.5, lambda: False)
    for net in range(3):
        alone = fleet([net], "cpu")
        Plain(alone, versions[which[net]], targets, 10, [15.0]).epoch(0, [0.5], 0.5, lambda: False)
        for ours, theirs in zip(together.weights, alone.weights, strict=True):
            torch.testing.assert_close(ours[net : net + 1].cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_a_stack_has_fewer_layers_than_there_are_stages_of_draws():
    stack.new_stack(DBN, (2,) * 121, 2, [0])
    with pytest.raises(ValueError, match="a stack has 120 layers at most, not 121"):
        stack.new_stack(DBN, (2,) * 122, 2, [0])


def test_a_machine_that_diverges_is_named_with_the_setting_to_lower():
    with pytest.raises(stages.Diverged, match=r"layer 1 of 2, 12-7, epoch \d, seed \d: .* lower pretrain.lr"):
        trained(replace(GAUSSIAN, lr=(1e6,), epochs=(50,)))


def test_products_in_bfloat16_pretrain_about_as_well():
    exact, rough = (trained(DBN, products=dtype)[1] for dtype in (torch.float32, torch.bfloat16))
    for one, other in zip(exact, rough, strict=True):
        assert other.values == pytest.approx(one.values, rel=0.25)
