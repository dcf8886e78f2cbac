"""Nets of H taken out of a run: ten views of photographs against views cut by hand, ONNX Runtime and whole passes."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import onnxruntime
import photographs
import pytest
import torch
from PIL import Image
from toys import written

from meannet import cli, tenviews
from meannet.data import imagenet, shards
from meannet.fleets import trained_fleet
from meannet.runlog import RunFolder

SIZE, PATCH, CASES = 40, 32, 7
RECIPES = ("imagenet.h_dropout", "imagenet.h_backprop")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Pictures as published and prepared, and a finished run of each recipe."""
    root = tmp_path_factory.mktemp("nets")
    source = photographs.as_tars(root / "source")
    imagenet.prepare(source, out=root / "data" / "imagenet", workers=1, say=lambda _: None, size=SIZE, cases=15)
    for recipe in RECIPES:
        toy = written(photographs.toy(recipe, epochs=2), root / f"{recipe}.json")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MEANNET_DATA", str(root / "data"))
            assert cli.main(["run", str(toy), "--out", str(root / recipe), "--workers", "0", "--device", "cpu"]) == 0
    return root


@pytest.fixture
def data(root, monkeypatch):
    monkeypatch.setenv("MEANNET_DATA", str(root / "data"))


def loaded(root, recipe):
    """The run's net, and each validation picture's ten views, cut by hand and centred; and their labels."""
    folder = RunFolder.open(root / recipe)
    experiment = folder.experiment()
    fleet = trained_fleet(experiment, folder, experiment.net.hidden[0])
    mean = np.load(root / "data" / "imagenet" / "train.mean.npy")
    reader, pixels, every = shards.Reader(root / "data" / "imagenet", "val"), np.zeros((SIZE, SIZE, 3), np.uint8), []
    edge = SIZE - PATCH
    for case in range(CASES):
        reader.pixels(case, pixels)
        image = ((pixels - mean) * experiment.patches.scale).transpose(2, 0, 1)
        corners = [(edge // 2, edge // 2), (0, 0), (0, edge), (edge, 0), (edge, edge)]
        views = [image[:, top : top + PATCH, left : left + PATCH] for top, left in corners]
        every.append(np.stack([*views, *(view[:, :, ::-1] for view in views)]))
    return fleet.nets[0], torch.from_numpy(np.stack(every)), reader.index[:, 3], reader


@torch.no_grad()
def expected(root, recipe):
    net, views, _, _ = loaded(root, recipe)
    return np.stack([net.eval()(of_case.float()).softmax(1).mean(0).numpy() for of_case in views])


@pytest.mark.parametrize("recipe", RECIPES)
def test_photographs_of_any_size_are_prepared_and_answered_with_their_best_labels(root, recipe, tmp_path, capsys):
    wanted = expected(root, recipe)  # no data folder from here on
    names = []
    for name, _, content in photographs.validation():
        (tmp_path / name).write_bytes(content)
        names.append(name)
    sizes = {Image.open(io.BytesIO(content)).size for _, _, content in photographs.validation()}
    assert len(sizes) == CASES and (SIZE, SIZE) not in sizes
    assert cli.main(["predict", str(root / recipe), str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [case["case"] for case in found["cases"]] == names and found["classes"] == list(photographs.WORDS)
    np.testing.assert_allclose([case["probabilities"] for case in found["cases"]], wanted, rtol=1e-4, atol=1e-6)
    assert cli.main(["predict", str(root / recipe), *(str(tmp_path / name) for name in names)]) == 0
    printed = capsys.readouterr()
    assert "validation cases)" in printed.err
    for row, right, case in zip(csv.DictReader(io.StringIO(printed.out)), wanted, found["cases"], strict=True):
        order = np.argsort(-right)
        assert [row["label"], row["label_2"], row["label_3"]] == [photographs.WORDS[k] for k in order]
        assert [float(row[p]) for p in ("p", "p_2", "p_3")] == pytest.approx(right[order].tolist(), abs=1e-5)
        assert (row["label_4"], row["p_5"]) == ("", "") and case["label"] == case["best"][0]["label"] == row["label"]
    (tmp_path / "broken.JPEG").write_text("none")
    assert cli.main(["predict", str(root / recipe), str(tmp_path / "broken.JPEG")]) == 2
    assert "broken.JPEG cannot be read as a picture: neither a JPEG nor a PNG" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", RECIPES)
def test_exports_take_ten_views_in_onnx_runtime_torch_export_and_the_program_beside_them(
    root, recipe, tmp_path, capsys
):
    wanted, (_, _, _, reader) = expected(root, recipe), loaded(root, recipe)
    inputs = np.zeros((CASES, SIZE, SIZE, 3), np.uint8)
    for case in range(CASES):
        reader.pixels(case, inputs[case])
    inputs = inputs.transpose(0, 3, 1, 2).reshape(CASES, -1)
    common = ["export", str(root / recipe), "--divide", "255"]
    for to, name in (("onnx", "net.onnx"), ("pt2", "net.pt2"), ("torch", "h_net.safetensors")):
        assert cli.main([*common, "--to", to, "-o", str(tmp_path / name)]) == 0
    assert "in 4 random cases" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    labels, given = session.run(["label", "probabilities"], {"inputs": inputs.astype(np.float32)})
    np.testing.assert_allclose(given, wanted, atol=1e-5)
    assert list(labels) == [photographs.WORDS[k] for k in wanted.argmax(1)]
    program = torch.export.load(tmp_path / "net.pt2").module()
    for some in (inputs, inputs[:1]):
        np.testing.assert_allclose(program(torch.from_numpy(some).double()), wanted[: len(some)], atol=1e-5)
    np.save(tmp_path / "cases.npy", np.tile(inputs, (3, 1)))  # more than are computed at once
    call = [sys.executable, tmp_path / "h_net.py", tmp_path / "cases.npy"]
    lines = subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
    given = [[float(cell) for cell in row[-3:]] for row in csv.reader(lines)]
    np.testing.assert_allclose(given, np.tile(wanted, (3, 1)), atol=1e-5)


@pytest.mark.parametrize("recipe", RECIPES)
def test_sampled_networks_see_ten_views_each_as_whole_passes_one_by_one_do(root, data, recipe, monkeypatch, capsys):
    monkeypatch.setattr(tenviews, "AT_ONCE", 3)
    net, views, labels, _ = loaded(root, recipe)
    counts, wrong = [1, 2, 3, 5], np.zeros((2, 4), int)
    with torch.no_grad():
        for case in range(CASES):
            seen = []
            for sample in range(5):
                each = []
                for view in views[case]:
                    with net.sampling(sample, case):
                        each.append(net.train()(view[None].float()).softmax(1)[0].double().numpy())
                seen.append(np.mean(each, 0))
            if recipe.endswith("dropout"):
                assert np.abs(seen[0] - seen[1]).max() > 1e-4  # thinned in another way
            for column, count in enumerate(counts):
                arithmetic, geometric = np.mean(seen[:count], 0), np.exp(np.mean(np.log(seen[:count]), 0))
                wrong[0, column] += arithmetic.argmax() != labels[case]
                wrong[1, column] += geometric.argmax() != labels[case]
    assert cli.main(["eval", str(root / recipe), "--samples", "5", "--device", "cpu", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["counts"], row["views"], row["n_test"]) == (counts, 10, CASES)
    assert [row["arithmetic"], row["geometric"]] == wrong.tolist()
    result = json.loads((root / recipe / "result.json").read_text())
    assert row["mean_network"] == result["arms"][0]["errors"][0]
    assert json.loads((root / recipe / "eval.json").read_text())["rows"] == [row]
    assert cli.main(["report", str(root / recipe), "-o", str(root / "page.html")]) == 0
