"""The benchmark of image nets: everyone has the same net, and figures are what they are said to be."""

import json

import numpy as np
import pytest
import torch

from meannet import cli
from meannet.bench import images
from meannet.nn import convnets


def test_the_eager_peer_is_the_same_net():
    net = convnets.start_(convnets.cifar10(dropout=True), 0, [0.02] * 4).eval()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    peer = images.Eager(net).eval()
    with torch.no_grad():
        for layer in net.weight_layers():  # torch's dropout does not scale at test
            layer.dropout = None
        np.testing.assert_allclose(peer(x), net(x), rtol=1e-4, atol=1e-5)


def test_bench_images_prints_rows_for_both_nets(monkeypatch, capsys):
    monkeypatch.setattr(images, "BATCH", 4)
    assert cli.main(["bench", "--images", "--device", "cpu", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["who"], row["net"]) for row in document["rows"]] == [
        (who, net) for net in ("G without dropout", "G with dropout") for who in ("torch-eager", "meannet")
    ]
    for row in document["rows"]:
        assert row["updates_per_s"] > 0 and row["repeats"] == 3
        assert row["images_per_s"] == pytest.approx(4 * row["updates_per_s"], abs=0.1)
