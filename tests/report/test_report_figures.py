"""Figures: SVG that is well formed, stays text and follows the page's colours; features on their own scale."""

import base64
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file

from meannet.report import features, figures, runs, svg

NET = "784-800-800-10"
TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture(scope="module")
def run(fabricate, tmp_path_factory) -> runs.Run:
    return runs.read(fabricate(tmp_path_factory.mktemp("runs") / "full"))


@pytest.mark.parametrize("wide", [True, False])
def test_lines_are_named_at_their_ends_with_their_last_value(run: runs.Run, wide: bool):
    drawn = figures.mean_network(run, NET, wide=wide)
    texts = [element.text for element in ET.fromstring(drawn).iter(TEXT)]
    for arm in run.arms:
        last = 10_000 * run.mean_curve(NET, arm, "test_error")[1][-1]
        assert f"{arm} {figures.short(last)}" in texts
    assert {"paper 160", "test errors of 10,000", "epoch"} <= set(texts)


def test_figures_take_their_colours_from_the_page_and_have_their_own_without_one(run: runs.Run):
    for drawn in (
        figures.mean_network(run, NET),
        figures.training(run, NET),
        figures.sampled(run, rows_of(run, "dropout")),
    ):
        colours = re.findall(r"(?:fill|stroke): ([^;\"]*)", drawn)
        assert set(colours) - {"none"}
        assert all(re.fullmatch(r"none|var\(--[\w-]+, #[0-9a-f]{6}\)", colour) for colour in colours)


def test_names_and_numbers_in_a_figure_stay_as_they_are(fabricate, experiment, tmp_path: Path):
    name = 'lr 0.0125 #1c56c4 url(#p) id="x" 5 > 4'
    odd = replace(experiment, arms=(replace(experiment.arms[1], name=name),), seeds=(0,), claims=())
    run = runs.read(fabricate(tmp_path / "run", odd, until=300))
    last = 100 * run.mean_curve(NET, name, "test_error")[1][-1]
    drawn = svg.within("mark", figures.mean_network(run, NET))
    assert f"{name} {last:.2f} %" in [element.text for element in ET.fromstring(drawn).iter(TEXT)]


def test_the_page_defines_each_colour_with_the_same_light_value(run: runs.Run):
    page = Path(features.__file__).with_name("page.html").read_text()
    for colour, name in svg.VARIABLES.items():
        assert f"--{name}: {colour};" in page and page.count(f"--{name}: #") == 2  # light and dark


def test_the_axis_is_not_stretched_by_the_slow_start(run: runs.Run):
    assert max(run.curves(NET, "backprop", "test_error")[0][1]) == 0.9
    low, high = figures.error_limits(run)
    assert 40 < low < 60 and 240 < high < 300


def test_the_axis_shows_what_came_before_a_late_fall(run: runs.Run):
    falling = {10: 0.5, 20: 0.3, 30: 0.22, 40: 0.2, 50: 0.2, 60: 0.05}
    lines = [
        {"epoch": epoch, "net": NET, "arm": "backprop", "seed": 0, "test_error": error, "train_error": error}
        for epoch, error in falling.items()
    ]
    late = replace(run, metrics=lines)
    assert 2200 < figures.error_limits(late)[1] < 3000 and 22 < figures.training_limit(late) < 30


def test_the_papers_line_is_drawn_for_a_count_on_the_test_set_only(run: runs.Run):
    assert figures.paper_line(run) == 160
    held_out = replace(run.experiment, data=replace(run.experiment.data, held_out=True))
    assert figures.paper_line(replace(run, experiment=held_out)) is None
    assert figures.paper_line(replace(run, experiment=replace(run.experiment, claims=()))) is None


def test_a_long_line_is_drawn_with_few_points_and_ends_at_its_end():
    epochs = np.arange(1.0, 3001.0)
    fewer, values = figures.fewer(epochs, -epochs)
    assert len(fewer) <= figures.POINTS and fewer[-1] == 3000 and (values == -fewer).all()


@given(st.lists(st.floats(-50, 350), max_size=12))
def test_labels_keep_apart_and_in_order(wanted: list[float]):
    placed = figures._apart(wanted, 17.0, 300.0)
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    assert all(placed[above] - placed[below] >= 17 - 1e-9 for below, above in pairwise(order))
    assert all(place <= 300 for place in placed)


def test_a_long_name_is_shortened_and_its_value_kept():
    ending = figures.Ending("an arm with a very long name indeed, lr 0.1", "99.3", 99.3, svg.INK)
    text = figures._fitting(ending, 168)
    assert text.startswith("an arm") and text.endswith("… 99.3") and figures._width(text) <= 168


def test_arms_of_a_kind_share_a_colour_and_kinds_never_do():
    arms = ["backprop", "dropout, lr 1", "dropout, lr 2", "dropout+input", "gaussian", "other"]
    colours = [svg.arm_colour(arms, arm) for arm in arms]
    assert colours[1] == colours[2] == svg.ARMS[1] and len(set(colours)) == 5


def test_each_feature_fills_its_own_range_around_mid_grey():
    images = np.zeros((3, 2, 2))
    images[0] = [[0.5, 0.0], [-0.25, 0.0]]
    images[1] = [[0.0, -8.0], [4.0, 0.0]]
    picture = features.grid(images)
    assert picture.shape == (2, 8, 2)
    assert picture[:, 0:2, 0].tolist() == [[255, 128], [64, 128]]
    assert picture[:, 3:5, 0].tolist() == [[128, 0], [191, 128]]
    assert (picture[:, 6:8, 0] == 128).all()  # a unit without weights
    assert picture[:, 2, 1].tolist() == [0, 0] and (picture[:, 0:2, 1] == 255).all()  # gaps let the page through


def test_smoothness_is_zero_for_noise_and_one_for_a_slope():
    noise = np.random.default_rng(0).standard_normal((400, 28, 28))
    slope = np.broadcast_to(np.linspace(-1, 1, 200)[:, None], (1, 200, 200))
    assert abs(features.smoothness(noise)) < 0.02
    assert features.smoothness(slope) > 0.99


def test_panels_show_the_same_units_of_the_same_seed_arm_by_arm(run: runs.Run):
    seed, panels = features.panels(run) or pytest.fail("no panels")
    weights = load_file(run.folder / "state.safetensors")["weights.0"]  # arm by arm, seed by seed
    units = np.sort(np.random.default_rng(features.CHOICE).permutation(120)[:100])
    assert seed == 0 and [panel.arm for panel in panels] == run.arms
    for k, panel in enumerate(panels):
        shown = np.array(Image.open(io.BytesIO(base64.b64decode(panel.uri.partition(",")[2]))))
        first = weights[3 * k][units[0]].reshape(28, 28)
        assert shown.shape == (289, 289, 2)
        np.testing.assert_array_equal(shown[:28, :28, 0], np.rint(127.5 + 127.5 * first / abs(first).max()))
    assert panels[1].smoothness > panels[0].smoothness + 0.3


def test_features_are_shown_from_a_seed_that_no_arm_was_stopped_at(fabricate, experiment, tmp_path: Path):
    later = replace(experiment, seeds=(1, 0), optim=replace(experiment.optim, epochs=20))
    seed, _ = features.panels(runs.read(fabricate(tmp_path / "run", later, stopped=True))) or pytest.fail("no panels")
    assert seed == 0


def rows_of(run: runs.Run, arm: str) -> list:
    return [row for row in (run.evaluation or {})["rows"] if row["arm"] == arm]
