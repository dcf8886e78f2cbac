"""Everything once, in seconds: each recipe at toy size, and losses fixed so that a changed number is noticed."""

import json
from dataclasses import replace

import pytest
from toys import small

from meannet import experiment as experiments
from meannet import recipes
from meannet.config import Arm, Dropout, Net, Optim
from meannet.experiment import Options

# Training loss, mean per case, in the last of eight epochs: backprop, dropout and dropout+input, two seeds each.
GOLDEN = {
    "logistic": (2.233775, 2.250243, 2.322876, 2.316994, 2.327431, 2.321021),
    "rectified": (1.86582, 1.190209, 2.140446, 2.000277, 2.262443, 2.189404),
}


@pytest.mark.parametrize("recipe", [name for name in recipes.RECIPES if not name.startswith("imagenet.")])
def test_every_recipe_runs_at_toy_size(recipe, tmp_path):
    toy = small(recipe)
    result = experiments.run(toy, tmp_path / "run")
    assert [arm["name"] for arm in result["arms"]] == [arm.name for arm in toy.arms] * len(toy.net.hidden)
    assert all(0 < error < arm["n_test"] for arm in result["arms"] for error in arm["errors"])
    assert sum(len(arm["seeds"]) + len(arm["stopped"]) for arm in result["arms"]) == 2 * len(result["arms"])
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"experiment.json", "metrics.jsonl", "result.json"}


@pytest.mark.parametrize("units", GOLDEN)
def test_losses_of_a_tiny_run_are_what_they_were(units, tmp_path):
    """All settings that decide them are written here, so that choosing others for a recipe does not show."""
    tiny = replace(
        small("digits", samples=0),
        net=Net(hidden=((16, 12),), units=units, initial_sd=0.3),
        dropout=Dropout(hidden=0.5, visible=0.2),
        optim=Optim(epochs=8, batch=50, lr=1.0, decay=0.95, momentum_epochs=6, limit=3.0),
        arms=(
            Arm(name="backprop"),
            Arm(name="dropout", hidden=True, lr=1.5),
            Arm(name="dropout+input", hidden=True, visible=True, limit=4.0),
        ),
    )
    experiments.run(tiny, tmp_path / "run", Options(path="plain"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["train_loss"] for line in lines[-6:]] == pytest.approx(GOLDEN[units], rel=1e-5)
