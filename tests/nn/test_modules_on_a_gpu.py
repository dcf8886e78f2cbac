"""The same parts on a GPU: masks of the CPU, sampling without a trace, training to the same net."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from meannet import convert, mean_network, sample_networks
from meannet.nn import Dropout, LocallyConnected2d, RandomGroupConv2d, ResponseNorm, seed_dropout_
from meannet.optim import DropoutSGD, param_groups

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    # What the compiler says of itself.
    pytest.mark.filterwarnings(
        "ignore:.*torch.jit:DeprecationWarning", "ignore:TensorFloat32 tensor cores:UserWarning"
    ),
]


def a_net():
    net = nn.Sequential(
        RandomGroupConv2d(4, 8, 3, groups=2, padding=1), nn.ReLU(), ResponseNorm(3), Dropout(0.2),
        LocallyConnected2d(8, 3, 5, 3), nn.Sigmoid(), nn.Flatten(),
        Dropout(torch.linspace(0, 0.9, 27)), nn.Linear(27, 3),
    )  # fmt: skip
    return seed_dropout_(net.double(), 3)


def test_a_net_learns_on_a_gpu_what_it_learns_on_the_cpu():
    here = a_net()
    there = copy.deepcopy(here).cuda()
    x, targets = torch.rand(20, 4, 5, 5, dtype=torch.float64), torch.randint(0, 3, (20,))
    optimizers = [DropoutSGD(param_groups(net, limit=0.5), lr=0.5, momentum=0.8) for net in (here, there)]
    for _ in range(5):
        assert here[3].mask(x[:, :1]).equal(there[3].mask(x[:, :1].cuda()).cpu())
        for net, optimizer, device in zip((here, there), optimizers, ("cpu", "cuda"), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(net(x.to(device)), targets.to(device)).backward()
            optimizer.step()
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(one, other.cpu(), rtol=1e-9, atol=1e-12)
    assert there[3].updates.item() == 5 and there[3].updates.is_cuda
    torch.testing.assert_close(mean_network(here)(x), mean_network(there)(x.cuda()).cpu(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(sample_networks(here, x, 3), sample_networks(there, x.cuda(), 3).cpu())


def test_sampling_on_a_gpu_leaves_its_random_state():
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), Dropout(0.5)).cuda()
    x = torch.rand(5, 6, device="cuda")
    before = torch.cuda.get_rng_state(), torch.get_rng_state()
    first = sample_networks(net, x, 3)
    assert torch.cuda.get_rng_state().equal(before[0]) and torch.get_rng_state().equal(before[1])
    torch.rand(3, device="cuda")
    assert sample_networks(net, x, 3).equal(first) and not first[0].equal(first[1])


def test_masks_in_a_captured_graph_go_on_from_replay_to_replay():
    dropout, x = Dropout(0.5, seed=1).cuda(), torch.ones(8, 9, device="cuda")
    plain = Dropout(0.5, seed=1)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dropout(x)  # warms up
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = dropout(x)
    plain(x.cpu())
    for _ in range(3):
        graph.replay()
        assert out.cpu().equal(plain(x.cpu()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_keeps_the_masks_and_the_sums(dtype):
    net = a_net().float().cuda()
    twin = copy.deepcopy(net)
    x = torch.rand(6, 4, 5, 5, device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        low = net(x)
    torch.testing.assert_close(low.float(), twin(x), atol=0.05, rtol=0.05)


def test_compiled_for_a_gpu_it_draws_the_same_masks():
    torch.compiler.reset()
    compiled, plain = torch.compile(Dropout(0.3, seed=2).cuda(), fullgraph=True), Dropout(0.3, seed=2)
    for cases in (16, 16):
        assert compiled(torch.ones(cases, 50, device="cuda")).cpu().equal(plain(torch.ones(cases, 50)))


def test_a_net_on_a_gpu_converts_there():
    net = nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2)).cuda()
    made, _ = convert.to_paper(net)
    x = torch.rand(3, 4, device="cuda")
    assert made(x).is_cuda
    torch.testing.assert_close(made.eval()(x), net.eval()(x))
