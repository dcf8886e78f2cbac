"""Image nets taken out of a run: predictions and exports against the run's own mean networks and ONNX Runtime."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from toys import small

from meannet import cli, data, fleets
from meannet import experiment as experiments
from meannet.config import Data
from meannet.data import Cases, Dataset
from meannet.plain import Pool
from meannet.runlog import RunFolder
from meannet.trained import Choice, open_trained

SHAPE = (3, 10, 9)


def pictures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(256, (count, *SHAPE), generator=generator, dtype=torch.uint8)
    return Cases(inputs, torch.randint(4, (count,), generator=generator))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose second arm omits units of every hidden layer, with maximum and average pools, and local layers."""
    dataset = Dataset("cifar10", pictures(90, 0), pictures(20, 1), tuple("abcd"), SHAPE[1:], "digest")
    full = small("cifar10.conv_dropout", epochs=2, samples=0, data=Data(name="cifar10"))
    toy = replace(full, conv=replace(full.conv, local=(2, 3), scale=1 / 32, norm_alpha=0.5))
    folder = tmp_path_factory.mktemp("images") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("meannet.data.cifar10.load", lambda **_: dataset)
        experiments.run(toy, folder)
        fleet, _, _ = fleets.load_fleet(
            toy, RunFolder.open(folder), toy.net.hidden[0], data.load(toy.data, say=print), torch.device("cpu")
        )
    return folder, toy, fleet, dataset


def expected(fleet, inputs, nets):
    with torch.no_grad():
        return fleet.mean_outputs(inputs)[list(nets)].softmax(-1).mean(0).numpy()


@pytest.mark.parametrize(("arm", "seed", "nets"), [(0, "0", [0]), (2, "1", [5]), (2, "all", [4, 5])])
def test_the_network_of_a_run_gives_what_the_run_gave(run, arm, seed, nets):
    folder, toy, fleet, dataset = run
    inputs = dataset.test.inputs
    found = open_trained(folder, Choice(arm=toy.arms[arm].name, seed=seed, divide=255.0))
    given = found.network(inputs.flatten(1).double())
    np.testing.assert_allclose(given, expected(fleet, inputs, nets), rtol=1e-4, atol=1e-6)
    unit = open_trained(folder, Choice(arm=toy.arms[arm].name, seed=seed)).network(inputs.flatten(1).double() / 255)
    np.testing.assert_allclose(given, unit, rtol=1e-9)


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize(
    ("rows", "columns", "size", "stride"), [(10, 9, 3, 2), (5, 4, 2, 2), (2, 7, 3, 3), (6, 6, 1, 2)]
)
def test_pools_are_torchs(kind, rows, columns, size, stride):
    x = torch.randn(2, 3, rows, columns, generator=torch.Generator().manual_seed(0)).double()
    window = min(size, rows), min(size, columns)
    theirs = torch.nn.functional.max_pool2d if kind == "max" else torch.nn.functional.avg_pool2d
    np.testing.assert_allclose(Pool(kind, size, rows, columns, stride)(x), theirs(x, window, stride, ceil_mode=True))


def test_exports_agree_with_onnx_runtime_torch_export_and_the_program_beside_them(run, tmp_path, capsys):
    folder, toy, fleet, dataset = run
    inputs, wanted = dataset.test.inputs.flatten(1), expected(fleet, dataset.test.inputs, [4, 5])
    common = ["export", str(folder), "--arm", toy.arms[2].name, "--seed", "all", "--divide", "255"]
    for to, name in (("onnx", "net.onnx"), ("pt2", "net.pt2"), ("torch", "image_net.safetensors")):
        assert cli.main([*common, "--to", to, "-o", str(tmp_path / name)]) == 0
    assert "agrees with the network to" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    labels, given = session.run(["label", "probabilities"], {"inputs": inputs.numpy().astype(np.float32)})
    np.testing.assert_allclose(given, wanted, atol=1e-5)
    assert list(labels) == ["abcd"[k] for k in wanted.argmax(1)]
    program = torch.export.load(tmp_path / "net.pt2").module()
    np.testing.assert_allclose(program(inputs.double()), wanted, atol=1e-5)
    np.save(tmp_path / "cases.npy", dataset.test.inputs.numpy())
    call = [sys.executable, tmp_path / "image_net.py", tmp_path / "cases.npy"]
    lines = subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
    np.testing.assert_allclose([[float(v) for v in line.split(",")[1:]] for line in lines], wanted, atol=1e-5)


def test_a_net_of_grey_pictures_gives_what_the_run_gave(tmp_path):
    """Grey pixels are learned from as numbers up to 1, where those in colour are bytes."""
    toy = small("cifar10.quick", epochs=1, samples=0)
    folder, digits = tmp_path / "run", data.load(toy.data, say=print)
    experiments.run(toy, folder)
    fleet, _, _ = fleets.load_fleet(toy, RunFolder.open(folder), toy.net.hidden[0], digits, torch.device("cpu"))
    inputs = digits.test.inputs[:20]
    found = open_trained(folder, Choice(arm=toy.arms[0].name, seed="0"))
    np.testing.assert_allclose(found.network(inputs.double()), expected(fleet, inputs, [0]), rtol=1e-4, atol=1e-6)


def test_pictures_are_predicted_in_colour(run, tmp_path, capsys):
    folder, toy, fleet, dataset = run
    inputs, wanted = dataset.test.inputs[:3], expected(fleet, dataset.test.inputs[:3], [4])
    for number, pixels in enumerate(inputs):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    common = ["predict", str(folder), "--arm", toy.arms[2].name, "--json"]
    assert cli.main([*common, *(str(tmp_path / f"{k}.png") for k in range(3))]) == 0
    found = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose([case["probabilities"] for case in found["cases"]], wanted, atol=1e-5)
    assert [case["label"] for case in found["cases"]] == ["abcd"[k] for k in wanted.argmax(1)]
    np.save(tmp_path / "bytes.npy", inputs.numpy())
    assert cli.main([*common, "--divide", "255", str(tmp_path / "bytes.npy")]) == 0
    again = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose([case["probabilities"] for case in again["cases"]], wanted, atol=1e-5)
    np.save(tmp_path / "wrong.npy", inputs[:, 0].numpy())
    assert cli.main([*common, str(tmp_path / "wrong.npy")]) == 2
    assert "the net takes (cases, 270) or (cases, 3, 10, 9)" in capsys.readouterr().err
