"""Test pictures in the report: which are chosen, what is said of them, and a file that is broken."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from meannet import examples, report
from meannet.report.examples import examples as shown
from meannet.report.runs import read

NAMES = ("cat, domestic cat", "bird", "frog", "ship", "truck", "deer")


def looked(cases):
    """Everything is taken for a bird, but for every third case."""
    rows = np.full((len(cases), 6), 0.02)
    for row, case in zip(rows, cases, strict=True):
        row[2 if case % 3 == 0 else 1] = 0.9
    return [examples.raw(np.full((4, 4, 3), case % 256, np.uint8)) for case in cases], rows


LABELS = np.arange(600) % 6


def test_pictures_are_chosen_without_the_net_and_those_of_one_class_have_right_ones_first():
    found = examples.gather(LABELS, NAMES, looked)
    other = examples.gather(LABELS, NAMES, lambda cases: (looked(cases)[0], np.full((len(cases), 6), 1 / 6)))
    assert [one["case"] for one in found["cases"]] == [one["case"] for one in other["cases"]]
    alike = found["of_class"]
    assert alike["label"] == 1 and len(alike["cases"]) == 10 and {LABELS[one["case"]] for one in alike["cases"]} == {1}
    right = [one["best"][0]["label"] == 1 for one in alike["cases"]]
    assert right == sorted(right, reverse=True) and {one["case"] for one in alike["cases"]} == {
        one["case"] for one in other["of_class"]["cases"]
    }
    for one in found["cases"]:
        assert [b["probability"] for b in one["best"]] == [0.9, *[0.02] * 4]
        assert one["best"][0]["label"] == (2 if one["case"] % 3 == 0 else 1)


@pytest.fixture
def folder(fabricate, tmp_path):
    """A finished run with examples."""
    finished = fabricate(tmp_path / "run")
    facts = {"net": "3x4x4-c2-6", "arm": "dropout", "seed": 0, "views": 10}
    (finished / "examples.json").write_text(json.dumps(facts | examples.gather(LABELS, NAMES, looked)))
    return finished


def test_the_page_shows_pictures_with_bars_and_says_how_many_are_right(folder, tmp_path):
    found = shown(read(folder))
    first = sum(one.right for one in found.shown)
    assert found.finding.startswith(f"The right label comes first for {first} of 8 test pictures")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(found.shown[0].uri.partition(",")[2]))))
    case = read(folder).examples["cases"][0]["case"]
    assert pixels.shape == (4, 4, 3) and (pixels == case % 256).all()
    report.write([folder], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count('class="example"') == 8 and page.count("<li") - page.count("<li>") >= 1
    assert (
        "averaged over 10 views" in page and "“bird”" in page and "domestic cat" not in page.split("Test pictures")[1]
    )
    assert "width: 90.0%" in page


def test_a_broken_file_is_named(folder, tmp_path):
    document = json.loads((folder / "examples.json").read_text())
    document["cases"][0]["picture"]["pixels"] = "AAAA"
    (folder / "examples.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"examples\.json is broken .*remove it and the report goes without pictures"):
        report.write([folder], tmp_path / "page.html")
