"""Pretraining on the page: curves of every stage, samples and receptive fields as they are in the run folder."""

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file
from toys import small

from meannet import experiment as experiments
from meannet import report
from meannet.report import features, pretraining, runs


@pytest.fixture(scope="module", params=["mnist.a2_dbn", "mnist.a2_dbm"])
def folder(request, tmp_path_factory):
    where = tmp_path_factory.mktemp("pretrained") / "run"
    experiments.run(small(request.param, epochs=2, samples=0), where)
    return where


def pixels(panel):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(panel.uri.partition(",")[2]))))


def test_the_page_has_a_curve_for_every_stage_and_both_pictures(folder, tmp_path):
    report.write([folder], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    lines = [json.loads(line) for line in (folder / "pretrain.jsonl").read_text().splitlines()]
    names = list(dict.fromkeys(line["name"] for line in lines))
    assert len(names) == 4 and all(f'<p class="name">{name}</p>' in page for name in names)
    assert "samples from the model" in page and "receptive fields" in page
    ids = re.findall(r' id="([\w.-]+)"', page)
    assert len(ids) == len(set(ids))
    last = [line["value"] for line in lines if line["name"] == names[0]][-2:]
    assert f"{np.mean(last):.1f}" in page


def test_pictures_are_those_of_the_saved_stack(folder):
    found = pretraining.gather(runs.read(folder), "p")
    tensors = load_file(folder / "pretrained.safetensors")
    sample = np.rint(255 * (1 - tensors["samples"][0, 11].astype(np.float64).reshape(8, 8)))
    # Number 11 stands second in the second row, and a pixel of space is around each.
    np.testing.assert_array_equal(pixels(found.samples)[9:17, 9:17, 0], sample)
    weights = tensors["layers.0.weights"][0]
    if "dbm.weights" in tensors:
        weights = tensors["dbm.weights"][0, :64, : len(weights)].T
    expected = features.grid(weights.astype(np.float64).reshape(-1, 8, 8))  # fewer units than are shown
    np.testing.assert_array_equal(pixels(found.fields), expected)


def test_features_of_finetuned_nets_leave_the_extra_inputs_out(folder):
    _, panels = features.panels(runs.read(folder))
    assert [panel.arm for panel in panels] == ["backprop", "dropout", "dropout+input"]
    assert pixels(panels[0]).shape[:2] == (8, 8 * 9 - 1)


def test_a_run_that_has_only_begun_to_pretrain_can_be_looked_at(folder, tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    for name in ("experiment.json", "environment.json"):
        (begun / name).write_bytes((folder / name).read_bytes())
    first, *_ = (folder / "pretrain.jsonl").read_text().splitlines(keepends=True)
    (begun / "pretrain.jsonl").write_text(first + '{"epoch": 2, "ne')
    report.write([begun], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "This run is unfinished" in page and "after the first epoch" in page and "samples from" not in page
