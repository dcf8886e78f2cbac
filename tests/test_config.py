"""Experiments as values: changed by path, written to JSON and read back, refused with the field and the remedy."""

import copy
import dataclasses
import hashlib
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meannet import config, recipes
from meannet.config import (
    Arm,
    Claim,
    Conv,
    Data,
    Experiment,
    Net,
    Optim,
    from_json,
    nearest,
    override,
    text_of,
    to_json,
)
from meannet.core.schedule import learning_rate, momentum

EVERY_RECIPE = pytest.mark.parametrize("name", recipes.RECIPES)


@pytest.fixture
def experiment():
    return Experiment(
        recipe="toy",
        paper="body",
        about="A toy.",
        data=Data(name="digits"),
        net=Net(hidden=((8, 8), (5,))),
        optim=Optim(epochs=10),
        arms=(Arm(name="backprop", lr=0.3), Arm(name="dropout", hidden=True), Arm(name="dropout+input", hidden=True)),
        seeds=(0, 1),
    )


@pytest.mark.parametrize(
    ("setting", "read", "value"),
    [
        ("net.hidden=1200,1200", lambda e: e.net.hidden, ((1200, 1200),)),
        ("net.hidden=800,800;1200,1200,1200;7", lambda e: e.net.hidden, ((800, 800), (1200, 1200, 1200), (7,))),
        ("net.hidden= 12 , 13 ", lambda e: e.net.hidden, ((12, 13),)),
        ("net.units=rectified", lambda e: e.net.units, "rectified"),
        ("net.initial_sd=0.1", lambda e: e.net.initial_sd, 0.1),
        ("optim.epochs=3", lambda e: e.optim.epochs, 3),
        ("optim.lr=1e-2", lambda e: e.optim.lr, 0.01),
        ("optim.limit=inf", lambda e: e.optim.limit, math.inf),
        ("optim.batch=7", lambda e: e.optim.batch, 7),
        ("optim.rule=plain", lambda e: e.optim.rule, "plain"),
        ("optim.cuts=3,5", lambda e: e.optim.cuts, (3, 5)),
        ("optim.cuts=", lambda e: e.optim.cuts, ()),
        ("dropout.hidden=0.4", lambda e: e.dropout.hidden, 0.4),
        ("dropout.visible=0", lambda e: e.dropout.visible, 0.0),
        ("data.held_out=true", lambda e: e.data.held_out, True),
        ("arms.backprop.lr=none", lambda e: e.arms[0].lr, None),
        ("arms.dropout.limit=3.5", lambda e: e.arms[1].limit, 3.5),
        ("arms.dropout+input.visible=true", lambda e: e.arms[2].visible, True),
        ("seeds=4,5,6", lambda e: e.seeds, (4, 5, 6)),
        ("record_every=5", lambda e: e.record_every, 5),
        ("samples=20", lambda e: e.samples, 20),
    ],
)
def test_a_path_sets_the_value_it_names_and_no_other(experiment, setting, read, value):
    changed = override(experiment, [setting])
    assert read(changed) == value and type(read(changed)) is type(value)
    before, after = config.settings(experiment), config.settings(changed)
    assert {path for path in before if before[path] != after[path]} <= {setting.partition("=")[0]}


def test_later_settings_win_and_the_experiment_itself_stays(experiment):
    before = to_json(experiment)
    assert override(experiment, ["optim.lr=1", "optim.epochs=4", "optim.lr=2"]).optim == Optim(epochs=4, lr=2.0)
    assert to_json(experiment) == before and override(experiment, []) == experiment


@pytest.mark.parametrize("order", [1, -1])
def test_settings_that_fit_together_only_are_taken_in_any_order(order):
    changes = ["conv.banks=32,32", "conv.pools=max,average", "conv.normalised=1"][::order]
    conv = override(recipes.get("cifar10.g_conv"), changes).conv
    assert (conv.banks, conv.pools, conv.normalised) == ((32, 32), ("max", "average"), 1)
    with pytest.raises(ValueError, match="pools"):
        override(recipes.get("cifar10.g_conv"), changes[:1] if order == 1 else changes[-1:])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("net.hiden=3", "no setting 'net.hiden'; did you mean hidden\\? \\(in net\\)"),
        ("opim.lr=3", "no setting 'opim.lr'; did you mean optim.lr\\?"),
        ("opim.rate=3", "no setting 'opim.rate'; did you mean optim\\?"),
        ("epochs=3", "no setting 'epochs'; did you mean optim.epochs\\?"),
        ("train.limit=3", "no setting 'train.limit'; did you mean optim.limit\\?"),
        ("arms.dropuot.lr=3", "no arm 'dropuot'.* did you mean dropout\\?"),
        ("arms.dropout.rl=3", "no setting 'arms.dropout.rl'.*in arms.dropout"),
        ("net.units=x", "net.units must be one of logistic, rectified, not 'x'$"),
        ("net.units=rectifed", "net.units must be one of logistic, rectified.* did you mean rectified\\?"),
        ("zzz=3", "no setting 'zzz'; there is data, net, optim"),
        ("optim.lr", "path=value, not 'optim.lr'"),
        ("net=3", "'net' is a group.* net.hidden"),
        ("arms=3", "'arms' is a group"),
        ("arms.dropout=3", "arms.dropout is a whole arm"),
        ("net.hidden.first=3", "has no 'first'"),
        ("recipe=other", "recipe is the recipe's own and cannot be set"),
        ("data.name=mnist", r"data\.name is the recipe's own and cannot be set"),
        ("=3", "no setting ''"),
        ("optim.epochs=1.5", "optim.epochs must be a whole number, not '1.5'"),
        ("optim.lr=fast", "optim.lr must be a number, not 'fast'"),
        ("net.hidden=8,x", "net.hidden must be a whole number, not 'x'"),
        ("data.held_out=yes", "data.held_out must be true or false, not 'yes'"),
    ],
)
def test_a_wrong_setting_is_answered_with_its_path_and_the_nearest_there_is(experiment, setting, message):
    with pytest.raises(ValueError, match=message):
        override(experiment, [setting])


@pytest.mark.parametrize(
    "setting",
    [
        "optim.epochs=0", "optim.batch=0", "optim.lr=0", "optim.lr=-1", "optim.lr=inf", "optim.lr=nan",
        "optim.decay=0", "optim.decay=1.1", "optim.momentum_start=1", "optim.momentum_end=-0.1",
        "optim.momentum_epochs=-1", "optim.limit=0", "optim.limit=nan", "dropout.hidden=1", "dropout.visible=-0.1",
        "dropout.hidden=nan", "net.hidden=0", "net.hidden=8,-8", "net.hidden=", "net.hidden=8;8",
        "net.initial_sd=0", "net.initial_bias=nan", "seeds=", "seeds=-1", "seeds=1,1", "seeds=9223372036854775808",
        "record_every=0", "samples=-1", "arms.dropout.lr=0", "arms.dropout.limit=-3",
        "arms.dropout.hidden_rates=1", "arms.dropout.hidden_rates=-0.1,0.5", "arms.dropout.visible_rate=1",
        "arms.dropout.weight_decay=-0.1", "arms.dropout.weight_decay=inf", "arms.dropout.top_decay=0.1",
        "arms.dropout.hidden_rates=0,0,0,0,0,0,0", "arms.backprop.hidden_rates=0.5", "arms.dropout.visible_rate=0.1",
    ],
)  # fmt: skip
def test_a_value_that_cannot_run_is_refused_by_its_path(experiment, setting):
    path = setting.partition("=")[0]
    with pytest.raises(ValueError, match=f"^{path} must be .*, not "):
        override(experiment, [setting])


def test_nets_of_shards_have_no_decay_of_an_arms_own():
    full = recipes.get("imagenet.h_dropout")
    path = f"arms.{full.arms[0].name}.weight_decay"
    with pytest.raises(ValueError, match=f"{path} must be none: such nets have patches.weight_decay, not 7"):
        override(full, [f"{path}=7"])
    assert path not in config.settings(full)


def test_arms_of_one_name_or_none_and_no_arm_at_all_are_refused(experiment):
    with pytest.raises(ValueError, match="arms must be named apart, not backprop,backprop"):
        dataclasses.replace(experiment, arms=experiment.arms[:1] * 2)
    with pytest.raises(ValueError, match="at least one arm"):
        dataclasses.replace(experiment, arms=())
    with pytest.raises(ValueError, match="arms must be named, not without a name"):
        dataclasses.replace(experiment, arms=(dataclasses.replace(experiment.arms[0], name=" "),))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_json_is_refused_by_name(tmp_path, content):
    (tmp_path / "e.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"e\.json is not valid JSON"):
        recipes.get(str(tmp_path / "e.json"))


@EVERY_RECIPE
def test_every_recipe_comes_back_from_its_own_json(name):
    recipe = recipes.get(name)
    text = json.dumps(to_json(recipe), allow_nan=False)
    assert from_json(json.loads(text)) == recipe
    assert from_json(json.loads(text)).digest() == recipe.digest()


@pytest.mark.parametrize("name", [name for name in recipes.RECIPES if name.startswith("cifar10.")])
def test_recipes_of_cifar10_say_of_their_learning_rate_what_is_so_from_their_first_weights(name):
    recipe = recipes.get(name)
    said = {source.path: source.section for source in recipe.sources}.get("optim.lr", "")
    small = bool(recipe.conv and recipe.conv.initial_sd)
    assert ("0.1 reduces the objective" in said) <= small and ("such weights" in said) <= (not small)
    assert ("learns badly" in said) <= (recipe.optim.lr < 0.01)
    assert said or any(arm.lr for arm in recipe.arms) or recipe.data.held_out, "a reason for its learning rate"


def test_cifar10_pools_has_the_reasons_of_the_net_it_is_set_beside():
    beside, pools = ({s.path: s for s in recipes.get(f"cifar10.{name}").sources} for name in ("aside", "pools"))
    assert {path for path in beside | pools if beside.get(path) != pools.get(path)} == {"conv.pool_size"}


@EVERY_RECIPE
def test_every_setting_of_every_recipe_can_be_set_to_its_own_text(name):
    recipe = recipes.get(name)
    for path, value in config.settings(recipe).items():
        if path == "data.name":
            continue  # a recipe's data set stays
        again = config.settings(override(recipe, [f"{path}={text_of(value)}"]))[path]
        assert again == (pytest.approx(value, rel=1e-5) if isinstance(value, float) else value), path


def test_infinity_is_written_as_a_word_and_integers_do_for_numbers(experiment):
    document = to_json(override(experiment, ["optim.limit=inf"]))
    assert document["optim"]["limit"] == "inf" and from_json(document).optim.limit == math.inf
    document["optim"]["limit"] = 15
    assert type(from_json(document).optim.limit) is float


def test_fields_left_out_take_their_defaults(experiment):
    document = to_json(experiment)
    del document["dropout"], document["optim"]["lr"], document["samples"]
    assert from_json(document) == experiment


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("optim", "epochs"), "10", "experiment.optim.epochs must be int, not '10'"),
        (("optim", "epochs"), 1.0, "experiment.optim.epochs must be int, not 1.0"),
        (("optim", "epochs"), True, "experiment.optim.epochs must be int, not True"),
        (("optim", "lr"), True, "experiment.optim.lr must be float, not True"),
        (("optim", "lr"), None, "experiment.optim.lr must be float, not None"),
        (("optim", "lr"), 10**400, "optim.lr must be above 0, not inf"),
        (("optim",), [], "experiment.optim must be an object, not \\[\\]"),
        (("optim", "epoch"), 3, "unknown field experiment.optim.epoch; did you mean epochs\\?"),
        (("net", "hidden"), 800, "experiment.net.hidden must be a list, not 800"),
        (("net", "hidden"), [800], "experiment.net.hidden\\[0\\] must be a list, not 800"),
        (("net", "hidden"), [[800, "x"]], "experiment.net.hidden\\[0\\]\\[1\\] must be int, not 'x'"),
        (("net", "units"), "tanh", "experiment.net.units must be one of logistic, rectified, not 'tanh'"),
        (("net", "units"), 3, "experiment.net.units must be one of"),
        (("arms", 1, "lr"), "1", "experiment.arms\\[1\\].lr must be float, not '1'"),
        (("arms", 1, "nam"), "1", "unknown field experiment.arms\\[1\\].nam; did you mean name\\?"),
        (("data", "held_out"), 1, "experiment.data.held_out must be bool, not 1"),
        (("recipe",), 3, "experiment.recipe must be str, not 3"),
        (("sedes",), [], "unknown field experiment.sedes; did you mean seeds\\?"),
    ],
)
def test_a_wrong_document_is_refused_by_the_field(experiment, path, value, message):
    document = to_json(experiment)
    inside = document
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        from_json(document)


@pytest.mark.parametrize(("group", "name"), [(None, "recipe"), (None, "arms"), ("optim", "epochs"), ("data", "name")])
def test_a_missing_field_is_named(experiment, group, name):
    document = to_json(experiment)
    del (document[group] if group else document)[name]
    with pytest.raises(ValueError, match=f"{group or 'experiment'}: missing 1 required .*'{name}'"):
        from_json(document)


@pytest.mark.parametrize("document", [None, [], "text", 3, {}])
def test_what_is_no_experiment_at_all_is_refused(document):
    with pytest.raises(ValueError, match="experiment"):
        from_json(document)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    """Every place in a document where something can be put."""
    found = [path] if path else []
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += places(value[key], (*path, key))
    return found


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_a_mutated_document_is_an_experiment_or_a_value_error(data):
    document = to_json(recipes.get(data.draw(st.sampled_from(["digits", "mnist.a1", "mnist.choose"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        *steps, last = data.draw(st.sampled_from(places(document)))
        inside = document
        for step in steps:
            inside = inside[step]
        change = data.draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "replace":
            inside[last] = data.draw(anything)
        elif change == "remove":
            del inside[last]
        elif isinstance(inside, dict):
            inside[data.draw(st.text(max_size=8))] = data.draw(anything)
        else:
            inside.append(data.draw(anything))
    before = copy.deepcopy(document)
    try:
        made = from_json(document)
    except ValueError as error:
        assert str(error)
    else:
        assert isinstance(made, Experiment)
        assert json.dumps(to_json(from_json(to_json(made)))) == json.dumps(to_json(made))
    assert json.dumps(document) == json.dumps(before)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from([*config.settings(recipes.get("digits")), "samples", "net", "arms"]), st.text(max_size=12))
def test_any_text_for_any_setting_is_taken_or_a_value_error(path, text):
    try:
        override(recipes.get("digits"), [f"{path}={text}"])
    except ValueError as error:
        assert str(error)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=30))
def test_any_text_at_all_is_a_setting_or_a_value_error(text):
    try:
        override(recipes.get("digits"), [text])
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize("epochs", [20, 600, 3000])
def test_a_compressed_schedule_ends_where_the_full_one_ends(epochs):
    full = Optim(epochs=3000, cuts=(1500, 2400))
    short = full.compressed(epochs)
    ends = [learning_rate(o.epochs, start=o.lr, decay=o.decay, cuts=o.cuts) for o in (full, short)]
    assert ends[1] == pytest.approx(ends[0], rel=1e-9)
    assert short.epochs == epochs and short.momentum_epochs == pytest.approx(epochs / 6, abs=0.5)
    assert short.cuts == (epochs // 2, epochs * 4 // 5)
    for share in (0.05, 0.1, 0.5):  # of the way through
        values = [
            momentum(round(share * o.epochs), start=o.momentum_start, end=o.momentum_end, ramp=o.momentum_epochs)
            for o in (full, short)
        ]
        assert values[1] == pytest.approx(values[0], abs=0.49 / (epochs / 6))
    assert (short.lr, short.limit, short.batch, short.rule) == (full.lr, full.limit, full.batch, full.rule)


def test_compressing_to_the_same_length_changes_nothing():
    assert Optim(epochs=3000).compressed(3000) == Optim(epochs=3000)


@EVERY_RECIPE
def test_a_quick_look_keeps_the_arms_and_shortens_the_rest(name):
    recipe = recipes.get(name)
    quick = recipe.quick()
    assert quick.arms == recipe.arms and quick.net.hidden == recipe.net.hidden[:1]
    few = recipe.quick_epochs or max(2, recipe.optim.epochs // 100)
    assert quick.seeds == recipe.seeds[:2] and quick.optim.epochs == few <= recipe.optim.epochs


def test_arms_take_the_shared_values_unless_they_have_their_own(experiment):
    backprop, dropout, both = override(experiment, ["arms.dropout+input.visible=true", "arms.dropout.limit=3"]).arms
    assert [experiment.lr(arm) for arm in (backprop, dropout)] == [0.3, 10.0]
    assert [experiment.limit(arm) for arm in (backprop, dropout)] == [15.0, 3.0]
    assert [experiment.rates(arm) for arm in (backprop, dropout, both)] == [(0.0, 0.0), (0.0, 0.5), (0.2, 0.5)]


def test_a_rate_a_hidden_layer_holds_for_those_after_it(experiment):
    changes = ["arms.dropout+input.visible=true", "arms.dropout+input.visible_rate=0.3", "arms.dropout.hidden_rates=0"]
    backprop, dropout, both = override(experiment, [*changes, "arms.dropout+input.hidden_rates=0.1,0.4"]).arms
    assert experiment.rates(backprop, 3) == (0, 0, 0, 0)
    assert experiment.rates(dropout, 3) == (0, 0, 0, 0)
    assert experiment.rates(both, 3) == (0.3, 0.1, 0.4, 0.4)
    arms = dataclasses.replace(experiment, arms=(backprop, dropout, both, dataclasses.replace(both, name="second")))
    assert arms.omitting() == {"dropout+input", "second"}
    second = dataclasses.replace(both, visible=False, visible_rate=None, hidden_rates=(0.0, 0.5))
    assert dataclasses.replace(experiment, arms=(second,)).omitting() == {"dropout+input"}


@pytest.mark.parametrize(
    "setting",
    [
        "optim.lr=1",
        "dropout.hidden=0.4",
        "net.hidden=9",
        "seeds=0",
        "arms.dropout.lr=2",
        "arms.dropout.hidden_rates=0.5,0",
    ],
)
def test_the_digest_changes_with_every_setting_that_decides_the_numbers(experiment, setting):
    assert override(experiment, [setting]).digest() != experiment.digest()


def test_the_digest_stays_with_what_does_not_decide_them(experiment):
    same = dataclasses.replace(experiment, about="Other words.", record_every=3, samples=9, time="long")
    assert same.digest() == experiment.digest()


def test_nearest_names_the_closest_match_or_all_there_is():
    assert nearest("hiden", ["hidden", "units"]) == "did you mean hidden?"
    assert nearest("q", ["hidden", "units"]) == "there is hidden, units"


def test_experiments_cannot_be_changed_in_place(experiment):
    with pytest.raises(dataclasses.FrozenInstanceError):
        experiment.seeds = (1,)


TEXT = recipes.get("reuters.subset")


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("words=500", "words", 500),
        ("alone=after", "alone", "after"),
        ("largest=0.5", "largest", 0.5),
        ("words_of=train", "words_of", "train"),
    ],
)
def test_what_makes_a_data_set_of_text_is_set_by_path_and_decides_the_numbers(setting, name, value):
    changed = override(TEXT, [f"data.selection.{setting}"])
    assert changed.data.selection == dataclasses.replace(TEXT.data.selection, **{name: value})
    assert config.settings(changed)[f"data.selection.{name}"] == value
    assert changed.digest() != TEXT.digest()
    assert from_json(json.loads(json.dumps(to_json(changed)))) == changed


@pytest.mark.parametrize("setting", ["words=0", "fewest=0", "largest=0", "largest=1.5", "held_out=1", "seed=-1"])
def test_a_selection_that_cannot_be_made_is_refused_by_its_path(setting):
    with pytest.raises(ValueError, match=rf"^data\.selection\.{setting.partition('=')[0]} must be .*, not "):
        override(TEXT, [f"data.selection.{setting}"])


def test_a_selection_is_for_text_alone(experiment):
    assert not any(path.startswith("data.selection") for path in config.settings(experiment))
    with pytest.raises(ValueError, match=r"data\.selection\.words is for data sets of text"):
        override(experiment, ["data.selection.words=3"])


def test_a_claimed_percentage_becomes_a_count_of_our_test_cases():
    assert Claim(arm="a", value=29.62, unit="% test errors").counted(201_369) == Claim(arm="a", value=59645.5)
    assert Claim(arm="a", value=110).counted(5) == Claim(arm="a", value=110)


def test_settings_that_came_later_count_in_the_digest_only_where_they_are_used(experiment):
    """So that runs which were saved before can be resumed."""
    names = ("data", "net", "dropout", "optim", "arms", "seeds")
    parts = to_json({name: getattr(experiment, name) for name in names})
    later_in_arms = ("conv", "weight_decay", "top_decay", "hidden_rates", "visible_rate", "adapt")
    for part, later in [
        (parts["data"], ("cases", "selection", "speech")),
        *((arm, later_in_arms) for arm in parts["arms"]),
    ]:
        for name in later:
            del part[name]
    assert experiment.digest() == hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    few = replace(experiment, data=replace(experiment.data, cases=10))
    assert few.digest() != experiment.digest()
    image = recipes.get("cifar10.g_conv")
    arm = replace(image.arms[0], weight_decay=0.0)  # which is not the experiment's own
    assert len({image.digest(), replace(image, arms=(arm,)).digest(), replace(image, conv=Conv()).digest()}) == 3
