"""Fleets of image nets: updates against torch's optimizer, captured ones against the plain, runs that resume."""

import copy
import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from toys import outcome, small

from meannet import evaluate, fast, imagefleets, images
from meannet import experiment as experiments
from meannet.config import Conv, Patches
from meannet.data import Cases, Dataset
from meannet.experiment import Interrupted, Options
from meannet.fast.images import Captured, _forwards, compiled, compiled_step
from meannet.nn.convfleet import conv_fleet, pixel_mean
from meannet.nn.convnets import Rates, image_net, patch_net
from meannet.train import train

SHAPE, CLASSES = (3, 8, 8), 4
CONV = Conv(banks=(6, 5), pools=("max", "average"), filter=3, normalised=1, local=(3,))
SPREADS = (0.1, 0.3, 0.3)
RATES = (Rates(), Rates(top=0.5))


def pictures(count=37, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(256, (count, *SHAPE), generator=generator, dtype=torch.uint8)
    return inputs, torch.randint(CLASSES, (count,), generator=generator)


def fleet(rates=RATES, decays=((0.0, 0.0), (0.01, 0.03)), **others):
    inputs, _ = pictures()
    nets = [image_net(CONV, (), CLASSES, shape=SHAPE, rates=own, seed=seed) for seed, own in enumerate(rates)]
    settings = {"output_sd": 0.3, "bias": [1.0] * len(nets), "units": "rectified", "scale": 1 / 64} | others
    return conv_fleet(nets, range(len(nets)), SPREADS, mean=pixel_mean(inputs), decays=decays, **settings)


def never():
    return False


def test_the_mean_of_each_pixel_is_taken_over_the_training_images():
    inputs, _ = pictures()
    np.testing.assert_allclose(pixel_mean(inputs), inputs.numpy().astype(np.float64).mean(0), rtol=1e-6)
    x = fleet().centred(inputs)
    np.testing.assert_allclose(x.mean(0), np.zeros(SHAPE), atol=1e-5)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_nets_of_a_fleet_are_views_of_its_tensors():
    made, (inputs, _) = fleet(), pictures()
    before = made.mean_outputs(inputs)
    kept = {name: tensor.clone() for name, tensor in made.state().items()}
    for net in made.nets:
        for parameter in net.parameters():
            parameter.data.add_(0.5)
    assert not made.mean_outputs(inputs).equal(before)
    for name, tensor in made.state().items():
        assert "velocities" in name or torch.allclose(tensor, kept[name] + 0.5)
        tensor.copy_(kept[name])
    assert made.mean_outputs(inputs).equal(before)


def test_a_convolutional_layer_without_a_pool_decays_as_one():
    net = patch_net(Patches(size=32, banks=(8,) * 5, filters=(7, 5, 3, 3, 3), groups=(1, 2, 2, 4, 4)), (6,), CLASSES)
    inputs = torch.zeros(1, 3, 32, 32)
    made = conv_fleet(
        [net], [0], (0.1,) * 6, output_sd=0.1, bias=[1.0], units="rectified", mean=inputs[0], decays=[(0.25, 0.5)]
    )
    decays = images.Learner(made, 0, math.inf).decays
    assert [decay.item() for decay in decays] == [0.25] * 5 + [0.5] * 2 + [0.0] * 7
    assert [layer.pool is None for layer in net.weight_layers()[:5]].count(True) > 0


def test_updates_are_those_of_torchs_momentum_with_the_same_masks():
    made, (inputs, targets) = fleet(), pictures()
    twins = [copy.deepcopy(net) for net in made.nets]
    engine = images.Plain(made, inputs, targets, 10, [math.inf] * 2)
    for epoch in range(2):
        assert engine.epoch(epoch, [0.05, 0.02], 0.9, never)
    from meannet.core import philox

    for net, (twin, rate, (conv, top)) in enumerate(zip(twins, (0.05, 0.02), made.decays, strict=True)):
        layers = twin.train().weight_layers()
        groups = [
            {"params": [layer.layer.weight], "weight_decay": conv if k < 2 else top} for k, layer in enumerate(layers)
        ]
        groups.append({"params": [layer.layer.bias for layer in layers], "weight_decay": 0.0})
        optimizer = torch.optim.SGD(groups, lr=rate, momentum=0.9)
        for epoch in range(2):
            for chosen in philox.order(made.seeds[net : net + 1], epoch, 37)[0].split(10):
                optimizer.zero_grad()
                F.cross_entropy(twin(made.centred(inputs[chosen])), targets[chosen]).backward()
                optimizer.step()
        for mine, theirs in zip(made.nets[net].parameters(), twin.parameters(), strict=True):
            np.testing.assert_allclose(mine.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)


def test_a_tally_counts_losses_errors_activity_and_movement():
    made, (inputs, targets) = fleet(rates=(Rates(),), decays=((0.0, 0.0),)), pictures()
    outputs = made.mean_outputs(inputs)[0].detach()
    found = images.Plain(made, inputs, targets, 64, [math.inf]).epoch(0, [0.0], 0.9, never)
    assert found is not None
    np.testing.assert_allclose(found.loss, [float(F.cross_entropy(outputs, targets, reduction="sum"))], rtol=1e-6)
    assert found.errors.tolist() == [int((outputs.argmax(1) != targets).sum())]
    assert found.active.all() and found.moved.all()


def test_hidden_weights_that_see_nothing_do_not_move_though_their_biases_do():
    net = image_net(Conv(banks=(4,), pools=("max",)), (), 2, shape=(3, 8, 8))
    black = torch.zeros(12, 3, 8, 8, dtype=torch.uint8)
    made = conv_fleet([net], [0], (0.1,), mean=0.0, output_sd=0.1, bias=[1.0], units="rectified", scale=1.0)
    found = images.Plain(made, black, torch.arange(12) % 2, 5, [math.inf]).epoch(0, [0.1], 0.9, never)
    assert found is not None and found.active.all() and not found.moved.any()
    assert not made.biases[0].eq(1).all()


def test_a_silent_layer_is_found_by_its_number_and_its_net_put_back():
    from meannet.config import Optim

    made, (inputs, targets) = fleet(), pictures()
    made.weights[1][1].zero_()
    made.biases[1][1].fill_(-1.0)
    before = {name: tensor.clone() for name, tensor in made.state().items()}
    optim = Optim(epochs=2, rule="plain", momentum_start=0.9, momentum_end=0.9, momentum_epochs=0, lr=0.01)
    epochs = list(train(made, images.Plain(made, inputs, targets, 10, [math.inf] * 2), 37, optim, [0.01] * 2))
    (fault,) = epochs[0].faults
    assert (fault.net, fault.layer, "collapsed" in fault.why) == (1, 2, True)
    assert all(tensor[1].equal(before[name][1]) for name, tensor in made.state().items())
    assert not made.weights[0][0].equal(before["weights.0"][0])


def test_the_bound_holds_for_filters_of_hidden_layers_and_no_others():
    made, (inputs, targets) = fleet(), pictures()
    images.Plain(made, inputs, targets, 10, [0.2, math.inf]).epoch(0, [0.01] * 2, 0.9, never)
    lengths = [weight.square().sum(-1) for weight in made.weights]
    assert all(own[0].max() <= 0.2 * (1 + 1e-5) for own in lengths[:-1]) and lengths[-1][0].max() > 0.2
    assert all(own[1].max() > 0.2 for own in lengths)


def test_what_an_update_changes_is_all_that_it_takes_to_undo_one():
    made, (inputs, targets) = fleet(), pictures()
    learner, x = images.Learner(made, 1, 0.3), made.centred(inputs)
    learner.begin(0)
    step, momentum = torch.tensor(0.05), torch.tensor(0.9)
    before, states = [tensor.clone() for tensor in learner.changed()], []
    for _ in range(2):
        learner.update_(images.Watched(learner.net), x, targets, step, momentum)
        states.append([tensor.clone() for tensor in learner.changed()])
        assert not any(one.equal(other) for one, other in zip(states[-1], before, strict=True) if one.dim() > 1)
        torch._foreach_copy_(learner.changed(), before)
    assert all(one.equal(other) for one, other in zip(*states, strict=True))


@pytest.mark.parametrize("limit", [math.inf, 0.3])
def test_captured_updates_do_what_plain_ones_do(limit):
    plain, quick, (inputs, targets) = fleet(), fleet(), pictures()
    one = images.Plain(plain, inputs, targets, 5, [limit] * 2)
    two = Captured(quick, inputs, targets, 5, [limit] * 2)
    for lane, forward in zip(two.lanes, _forwards(quick, "aot_eager"), strict=True):  # on a GPU compiled whole
        lane.pieces[0].forward, lane.pieces[0].stepped = forward, compiled_step("aot_eager")
    for epoch in range(2):
        tallies = [engine.epoch(epoch, [0.05, 0.02], 0.9, never) for engine in (one, two)]
        for name in ("loss", "errors", "active", "moved"):
            first, second = (getattr(found, name).double() for found in tallies)
            np.testing.assert_allclose(first, second, rtol=1e-5)
    for name, tensor in plain.state().items():
        np.testing.assert_allclose(tensor, quick.state()[name], rtol=1e-4, atol=1e-6)


def test_all_nets_share_one_compilation_and_keep_their_own_masks():
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    rates = (Rates(), Rates(top=0.5), Rates(conv=0.1), Rates(top=0.3))
    made, (inputs, targets) = fleet(rates, [(0.0, 0.0)] * 4), pictures()
    x = F.pad(made.centred(inputs), (0, 0, 0, 0, 0, 5))
    expected = []
    for net in made.nets:
        expected.append([F.cross_entropy(net.train()(x), targets).item() for _ in range(2)])
        for dropout in net.dropouts():
            dropout.updates.zero_()
    made.nets[0].eval()  # judged before it is compiled
    for forward, wanted in zip(_forwards(made, "aot_eager"), expected, strict=True):
        for one in wanted:
            loss, wrong, hidden = forward(x, targets)
            np.testing.assert_allclose(loss.item(), one, rtol=1e-5)
            assert 0 < wrong < len(targets) and len(hidden) == 3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert expected[0][0] == expected[0][1] and all(one[0] != one[1] for one in expected[1:])
    assert [int(d.updates) for net in made.nets for d in net.dropouts()] == [2] * 4


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # which nobody sees unless they ask for it
def test_the_compiler_tells_users_nothing_of_precisions_or_softmaxes(monkeypatch):
    from torch._inductor import compile_fx, config

    online = []

    def warned(*_, **__):
        online.append(config.online_softmax)
        warnings.warn("TensorFloat32 tensor cores available but not enabled", UserWarning, stacklevel=1)
        raise NotImplementedError  # before any code is made

    monkeypatch.setattr(compile_fx, "_recursive_post_grad_passes", warned)
    torch.compiler.reset()
    with pytest.raises(torch._inductor.exc.InductorError, match="NotImplementedError"):
        compiled(torch.sigmoid)(torch.ones(3))
    assert online == [False]


def test_sampled_networks_depend_on_the_case_not_on_its_chunk_and_average_to_the_mean_network():
    made, (inputs, _) = fleet(), pictures()
    with torch.no_grad():
        whole = made.sampled_outputs(inputs, 3, range(37))
        part = made.sampled_outputs(inputs[10:20], 3, range(10, 20))
        np.testing.assert_allclose(whole[:, 10:20], part, rtol=1e-5, atol=1e-6)
        assert whole[0].allclose(made.mean_outputs(inputs)[0]) and not whole[1].allclose(made.mean_outputs(inputs)[1])
        samples = torch.stack([made.sampled_outputs(inputs, sample, range(37))[1] for sample in range(400)])
        away = (samples.mean(0) - made.mean_outputs(inputs)[1]) / (samples.std(0) / 20 + 1e-9)
    assert away.abs().max() < 5
    masks = [dropout for net in made.nets for dropout in net.dropouts()]
    assert all(dropout.purpose == 0 and dropout.first_case == 0 for dropout in masks)


def test_sampling_brings_back_whatever_masks_were_next():
    made, (inputs, _) = fleet(), pictures()
    net, (dropout, *_) = made.nets[1].train(), made.nets[1].dropouts()
    dropout.first_case = 64
    dropout.updates.fill_(7)
    held = dropout.updates
    expected = copy.deepcopy(net)(made.centred(inputs))
    net.thinned(net.activities(made.centred(inputs), net.first_omitting())[-1], 3, 10)
    with pytest.raises(KeyError), net.sampling(3, 10):
        raise KeyError
    assert dropout.updates is held  # which a captured update reads
    assert net(made.centred(inputs)).equal(expected)


@torch.no_grad()
def test_samples_that_share_what_lies_below_the_first_omission_are_whole_passes():
    made, (inputs, _) = fleet((*RATES, Rates(conv=0.2), Rates(conv=0.2, top=0.5)), [(0.0, 0.0)] * 4), pictures()
    outputs, x = made.sampler(inputs[10:], range(10, 37)), made.centred(inputs[10:])
    for sample in (4, 0):
        for net, found in zip(made.nets, outputs(sample), strict=True):
            with net.sampling(sample, 10):
                assert net.train()(x).equal(found)
    assert [net.first_omitting() for net in made.nets] == [None, 2, 0, 0]
    assert not outputs(0)[1:].isclose(outputs(1)[1:]).all(2).any()


def test_testing_in_chunks_is_testing_at_once(monkeypatch):
    made, (inputs, targets) = fleet(), pictures()
    whole = evaluate.mean_network_figures(made, inputs, targets)
    monkeypatch.setattr(evaluate, "CHUNK_FLOATS", 5 * made.floats_a_case)
    parts = evaluate.mean_network_figures(made, inputs, targets)
    assert whole[0] == parts[0] and np.allclose(whole[1], parts[1])


def test_which_engine_runs_is_decided_by_device_and_path():
    made, (inputs, targets) = fleet(), pictures()
    assert isinstance(fast.engine(made, inputs, targets, 10, [math.inf] * 2), images.Plain)
    with pytest.raises(ValueError, match="CUDA devices only"):
        fast.engine(made, inputs, targets, 10, [math.inf] * 2, "fast")
    with pytest.raises(ValueError, match="--precision tf32: image nets have no choice"):
        fast.engine(made, inputs, targets, 10, [math.inf] * 2, precision="tf32")


@pytest.fixture
def coloured(monkeypatch):
    """`cifar10` is then a few small pictures."""
    train_cases, test_cases = Cases(*pictures(90)), Cases(*pictures(50, seed=1))
    dataset = Dataset("cifar10", train_cases, test_cases, tuple("abcd"), SHAPE[1:], "digest")
    monkeypatch.setattr("meannet.data.cifar10.load", lambda **_: dataset)


def toy(recipe, **changes):
    full = small(recipe, **changes)
    return replace(full, data=replace(full.data, name="cifar10", held_out=False))


def test_a_run_on_colour_images_leaves_a_whole_folder(coloured, tmp_path):
    result = experiments.run(toy("cifar10.g_local_dropout", samples=2), tmp_path / "run")
    (arm,) = result["arms"]
    assert arm["net"] == "3x8x8-c4-c3-c2-l2-4" and arm["name"] == "dropout" and arm["n_test"] == 50
    assert result["path"] == "plain" and result["claim"]["value"] == 1560
    assert json.loads((tmp_path / "run" / "eval.json").read_text())["rows"][0]["counts"] == [1, 2]
    from meannet.cli import main

    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    assert "3x8x8" in (tmp_path / "page.html").read_text()
    assert main(["eval", str(tmp_path / "run"), "--samples", "2", "--device", "cpu"]) == 0


@pytest.mark.parametrize("recipe", ["cifar10.g_conv", "cifar10.conv_dropout"])
def test_a_run_that_was_stopped_and_resumed_is_the_unbroken_one(coloured, tmp_path, recipe):
    whole = toy(recipe, epochs=4)
    experiments.run(whole, tmp_path / "whole", Options(path="plain"))
    asked = 0

    def stop():
        nonlocal asked
        asked += 1
        return asked > 2  # in the middle of an epoch

    with pytest.raises(Interrupted):
        experiments.run(whole, tmp_path / "broken", Options(path="plain", stop=stop))
    experiments.resume(tmp_path / "broken", Options(path="plain"))
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


def test_nets_do_not_depend_on_their_companions(coloured, tmp_path):
    both = toy("cifar10.conv_dropout", epochs=2)
    alone = replace(both, arms=both.arms[2:], seeds=(1,))
    experiments.run(both, tmp_path / "both")
    experiments.run(alone, tmp_path / "alone")

    def lines(folder):
        found = [json.loads(line) for line in (tmp_path / folder / "metrics.jsonl").read_text().splitlines()]
        return [line | {"seconds": 0} for line in found if line["arm"] == alone.arms[0].name and line["seed"] == 1]

    assert lines("both") == lines("alone") and len(lines("alone")) == 2


def test_initial_weights_have_the_given_sds_and_the_last_one_in_the_layers_above():
    full = small("cifar10.g_local")
    conv = replace(full.conv, banks=(64, 64, 8), local=(16,), initial_sd=(0.0001, 0.02))
    inputs, targets = pictures()
    cases = Cases(inputs.flatten(1), targets)
    made = imagefleets.make(full, conv, (), Dataset("pictures", cases, cases, tuple("abcd"), SHAPE[1:], ""), "cpu")
    for layer, sd in zip(made.nets[0].weight_layers(), (0.0001, 0.02, 0.02, 0.02), strict=False):
        assert layer.weight.std().item() == pytest.approx(sd, rel=0.05)
    with pytest.raises(ValueError, match=r"conv\.initial_sd must be at most 4 values above 0"):
        replace(full, conv=replace(full.conv, initial_sd=(0.1,) * 5))


def test_convolutions_need_pictures(tmp_path):
    with pytest.raises(ValueError, match="holds no pictures"):
        from meannet import outcome as outcomes

        cases = Cases(torch.rand(4, 6), torch.zeros(4, dtype=torch.int64))
        outcomes.net_name(small("cifar10.g_conv"), (), Dataset("table", cases, cases, ("a",), None, ""))
