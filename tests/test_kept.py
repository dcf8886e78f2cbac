"""Tables and picture of kept results, made from toy runs in the form that real runs leave."""

import copy
import json
import re
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path

import pytest

from meannet import config, kept, recipes, run
from meannet.bench import speeds
from meannet.kept import claims, pages, pictures, tables, thinned

PROJECT = Path(__file__).resolve().parents[1]
PAGE = """before
<!-- figure -->
old <!-- /figure -->
<!-- results -->
<!-- /results -->
<!-- headlines -->
<!-- /headlines -->
<!-- choices -->
old
<!-- /choices -->
| a | <!-- kept mnist.a1 -->old<!-- /kept --> | <!-- kept mnist.quick --><!-- /kept --> |
after
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The result of a toy run of the demonstration."""
    whole = recipes.get("digits")
    small = replace(whole, net=replace(whole.net, hidden=((8,),)), optim=whole.optim.compressed(4), seeds=(0, 1))
    return run(replace(small, record_every=1, samples=0), tmp_path_factory.mktemp("toy") / "run")


@pytest.fixture
def results(toy, tmp_path):
    """results/ with the toy result as it is, as one of mnist.a1 and as one of mnist.choose."""
    keep(tmp_path / "results" / "digits" / "here.json", toy)
    keep(tmp_path / "results" / "mnist.a1" / "8.json", as_fig1(toy))
    choice = copy.deepcopy(toy) | {"recipe": "mnist.choose", "data": toy["data"] | {"held_out": True}}
    for arm, (name, mean) in zip(choice["arms"], (("lr 1", 30.0), ("lr 3", 10.0), ("lr 9", 20.0)), strict=True):
        arm.update(name=f"backprop, {name}", mean=mean, sd=1.0)
    keep(tmp_path / "results" / "mnist.choose" / "8.json", choice)
    return tmp_path / "results"


def as_fig1(toy, means=(300.0, 200.0, 100.0), beyond=True):
    """The toy result under the name and with the claims of Fig. 1, its arms ending at `means`."""
    made = copy.deepcopy(toy) | {"recipe": "mnist.a1", "claims": config.to_json(recipes.get("mnist.a1").claims)}
    made["data"]["name"] = "mnist"
    for arm, mean in zip(made["arms"], means, strict=True):
        arm.update(mean=mean, sd=2.5)
    for pair, mean in zip(made["comparisons"], means[1:], strict=True):
        pair.update(difference=mean - means[0], beyond_spread=beyond)
    return made


def keep(path, result):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/results.md",
        "docs/paper-map.md",
        "docs/claims.md",
        "docs/tables.md",
        "docs/scale.md",
        "docs/cards/rbm.md",
        "docs/cards/dbn-dbm.md",
        "docs/cards/speech.md",
        "docs/cards/image-nets.md",
        "docs/architecture.md",
        "benchmarks/README.md",
    ],
)
def test_the_pages_are_up_to_date_with_the_kept_results(page):
    text = (PROJECT / page).read_text(encoding="utf-8")
    fresh = pages.fill(text, kept.FOLDER, (PROJECT / page).parent)
    assert fresh == text, "run `make kept`"


def test_the_picture_is_up_to_date_with_the_kept_results():
    results, picture = pictures.pictured(kept.FOLDER), PROJECT / pages.PICTURE
    assert picture.exists() == bool(results), "run `make kept`"
    if results:
        texts = set(xml.fromstring(picture.read_text(encoding="utf-8")).itertext())
        labels = {f"{name} {pictures.span_of(values)}" for name, values in pictures.ends(results).items()}
        assert labels | set(pictures.picture_words(results)) <= texts, "run `make kept`"


def test_the_picture_of_ranks_is_up_to_date_with_the_kept_comparison():
    document = pages.ranked(kept.FOLDER, "cpu")
    if document:
        shown = xml.fromstring((PROJECT / "docs" / pages.RANKS).read_text(encoding="utf-8")).itertext()
        assert [*shown] == [*xml.fromstring(pictures.ranks_picture(document)).itertext()], "run `make kept`"


def test_the_picture_of_growth_is_up_to_date_and_nothing_is_cut_off():
    document = json.loads((kept.FOLDER / pages.SCALE / "growth.json").read_text(encoding="utf-8"))
    shown = (PROJECT / "benchmarks" / pages.GROWTH).read_text(encoding="utf-8")
    assert [*xml.fromstring(shown).itertext()] == [*xml.fromstring(pictures.growth_picture(document)).itertext()]
    inner = xml.fromstring(shown).find("{*}svg/{*}svg")
    assert inner is not None
    width, height = (float(inner.attrib[side]) for side in ("width", "height"))
    for text in inner.iter("{*}text"):
        x, y = map(float, re.findall(r"[\d.]+", text.attrib["transform"].replace("rotate(-0 ", ""))[:2])
        assert 0 < x < width - 20 and 13 < y < height - 5, text.text  # a line of 13 pixels, with what hangs below it


def test_the_picture_of_thinned_networks_is_up_to_date_with_the_kept_results():
    drawn, *words = thinned.picture(kept.FOLDER)
    shown = xml.fromstring((PROJECT / "docs" / pages.THINNED).read_text(encoding="utf-8")).itertext()
    card = pictures.card(drawn, *thinned.SIZE, *words)
    assert len(words[0]) <= 75 and len(words[1]) <= 125  # or they would be cut off
    assert [*shown] == [*xml.fromstring(card).itertext()], "run `make kept`"


def evaluated(errors, mean_network, arm="dropout"):
    """Rows of an eval.json, a seed each: errors of one, ten and so on networks."""
    return [
        {"arm": arm, "seed": seed, "net": "4-3-2", "n_test": 50, "counts": [1, 10, 100], "mean_network": mean}
        | {"arithmetic": [n + 1 for n in one], "geometric": list(one)}
        for seed, (one, mean) in enumerate(zip(errors, mean_network, strict=True))
    ]


def test_the_table_of_thinned_networks_leaves_out_arms_that_omit_nothing(tmp_path):
    rows = evaluated([(9, 5, 4), (7, 5, 2)], [4, 2]) + evaluated([(3, 3, 3)], [3], "backprop")
    document = {"recipe": "toy", "samples": 100, "rows": rows, "device": "a CPU"}
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "toy.json").write_text(json.dumps(document))
    lines = thinned.table(tmp_path, tmp_path).splitlines()
    assert lines[2] == "| toy, dropout | arithmetic | 9.0 ± 1.4 | 6.0 ± 0.0 | 4.0 ± 1.4 |  | 3.0 ± 1.4 |"
    assert lines[3] == "|  | geometric | 8.0 ± 1.4 | 5.0 ± 0.0 | 3.0 ± 1.4 |  | 3.0 ± 1.4 |"
    assert lines[4:] == ["", "[toy](eval/toy.json): errors of 50 test cases of toy, 4-3-2, 2 seeds; a CPU."]


def test_thinned_networks_are_alike_the_mean_network_within_two_standard_errors():
    assert thinned.alike(evaluated([(9, 5, 4), (7, 5, 2), (7, 5, 3)], [4, 3, 2]))
    assert not thinned.alike(evaluated([(9, 5, 14), (7, 5, 12), (7, 5, 13)], [4, 3, 2]))


def test_the_picture_of_rates_is_up_to_date_with_the_kept_results():
    drawn, *words = claims.picture(kept.FOLDER)
    shown = xml.fromstring((PROJECT / "docs" / pages.RATES).read_text(encoding="utf-8")).itertext()
    card = pictures.card(drawn, *claims.SIZE, *words)
    assert [*shown] == [*xml.fromstring(card).itertext()], "run `make kept`"


def test_every_kept_result_is_of_a_recipe_and_names_where_it_was_made():
    for path in filter(Path.is_file, kept.FOLDER.glob("*/*")):
        result = json.loads(path.read_text(encoding="utf-8"))
        assert path.suffix == ".json" and "commit" in result and result["versions"] and result["device"]
        if path.parent.name in (*speeds.FOLDERS, pages.SCALE, tables.LABELS, claims.RELATIVES):
            assert any(result.get(part) for part in ("rows", "loader", "decoding", "scaling", "neighbour", "overhead"))
            assert result["date"]
            continue
        if path.parent.name in (thinned.EVALUATED, "sweep"):
            assert path.stem == result["recipe"] in recipes.RECIPES and result.get("rows", result.get("trials"))
            continue
        assert path.parent.name == result["recipe"] and result["seconds"] > 0
        assert result["recipe"] in (*recipes.RECIPES, pages.RANKED)


def test_the_table_of_a_neighbour_says_how_much_slower_each_is(tmp_path):
    row = {"who": "meannet", "path": "fast", "alone": 30.0, "alone_spread": 2.0, "beside": 20.0, "beside_spread": 1.0}
    row |= {"times_slower": 1.5, "repeats": 3}
    rows = [row | {"nets": nets} for nets in (1, 4)]
    assert speeds.neighbour_table(tmp_path, tmp_path) == speeds.NONE_YET
    keep(tmp_path / "neighbour" / "here.json", {"neighbour": rows, "device": "a CPU", "date": "2026-01-02"})
    text = speeds.neighbour_table(tmp_path, tmp_path)
    for who in ("meannet fast", "meannet fast, 4 nets at once"):
        assert f"| {who} | 30.0 ± 2.0 | 20.0 ± 1.0 | 1.50 |" in text
    assert "a CPU, 2026-01-02" in text


def test_the_table_of_overhead_has_prediction_and_what_a_run_costs(tmp_path):
    one = {"batch": 10000, "meannet": {"ms": 3.0, "spread": 0.1}, "torch": {"ms": 3.3, "spread": 0.2}}
    one |= {"estimator": {"ms": 3.1, "spread": 0.1}}
    cost = {"epochs": 3, "updates_s": 50.0, "tests_s": 0.2, "between_s": 0.5, "between_percent": 1.0}
    cost |= {"before_s": 2.0, "after_s": 1.0}
    found = {"prediction": [one | {"times_faster": 1.1}], "overhead": cost, "device": "a CPU", "date": "2026-01-02"}
    keep(tmp_path / "overhead" / "here.json", found)
    text = speeds.overhead_table(tmp_path, tmp_path)
    assert "| 10,000 | 3.00 ± 0.10 | 3.30 ± 0.20 | 3.10 ± 0.10 | 1.10 |" in text
    assert "0.50 s (1.0 %) between epochs" in text


def test_the_table_of_speed_has_every_row_and_its_ratio(tmp_path):
    row = {"net": "2-3-2", "nets": 1, "batch": 5, "units": "relu", "path": "", "spread": 0.5, "repeats": 7}
    rows = [row | {"who": "meannet", "path": "fast", "updates_per_s": 30.0}]
    rows += [
        row | {"who": "meannet", "path": "fast", "nets": 4, "updates_per_s": 2400.0},
        row | {"who": speeds.EAGER, "updates_per_s": 12.0},
        row | {"who": "odd", "units": "step", "updates_per_s": 1.0},
    ]
    keep(tmp_path / "bench" / "here.json", {"rows": rows, "device": "a CPU", "date": "2026-01-02"})
    text = speeds.speed_table(tmp_path, tmp_path)
    assert "| meannet fast | relu | 30.0 ± 0.5 | 33,333 | 2.50 |" in text
    assert "| meannet fast, 4 nets at once | relu | 2,400.0 ± 0.5 | 417 | 200.00 |" in text
    assert "| odd | step | 1.0 ± 0.5 | 1,000,000 |  |" in text
    assert "[here](bench/here.json): 2-3-2, mini-batches of 5, on a CPU, 2026-01-02." in text


def test_the_table_of_image_nets_says_what_a_run_takes(tmp_path):
    row = {"who": "meannet", "net": "G with dropout", "nets": 1, "path": "fast", "batch": 128, "repeats": 7}
    row |= {"updates_per_s": 2000.0, "spread": 3.0, "images_per_s": 250_000.0}
    of_imagenet = row | {"net": "H with dropout"}
    keep(tmp_path / "images" / "here.json", {"rows": [row, of_imagenet], "device": "a GPU", "date": "2026-01-02"})
    text = speeds.images_table(tmp_path, tmp_path)
    assert "| meannet fast | G with dropout | 2,000 ± 3 | 250,000 | 100 | 20.0 |" in text and "H with" not in text
    assert "[here](images/here.json): mini-batches of 128, on a GPU, 2026-01-02" in text


def test_the_table_of_rounding_has_a_row_a_precision(toy, tmp_path):
    for name in ("bfloat16", "tf32"):
        rounded = toy | {"recipe": tables.ROUNDING, "precision": f"{name} products"}
        keep(tmp_path / tables.ROUNDING / f"{name}.json", rounded)
    rows = tables.rounding_table(tmp_path, tmp_path).splitlines()
    assert rows[0] == "| products in | backprop | dropout | dropout+input | time |" and len(rows) == 4
    assert rows[2].startswith("| [bfloat16 products](mnist.rounding/bfloat16.json) | ")


def test_the_table_of_pretraining_says_how_many_times_ours_each_is(tmp_path):
    row = {"who": "meannet-rbm", "note": "", "nets": 1, "epochs_per_s": 4.0, "repeats": 7}
    peer = row | {"who": "peer", "note": "as is", "nets": 2, "epochs_per_s": 0.5}
    keep(tmp_path / "pretrain" / "here.json", {"rows": [row, peer], "device": "a CPU", "date": "2026-01-02"})
    text = speeds.pretrain_table(tmp_path, tmp_path)
    link = "[here](pretrain/here.json)"
    assert (
        f"| {link} | peer, 2 machines at once (as is) | 0.5 | 0.12 |" in text
        and "a CPU, 2026-01-02: medians of 7 repeats" in text
    )


def test_a_run_that_compares_settings_has_a_table_of_its_own(toy, tmp_path):
    result = copy.deepcopy(toy) | {"recipe": "timit.rates"}
    result["arms"][1]["name"] = "dropout, lr 3"
    keep(tmp_path / "timit.rates" / "here.json", result)
    one, other, *_ = result["arms"]
    assert tables.results_table(tmp_path, tmp_path) == "No result is kept yet."
    rows = tables.settings_table(tmp_path, tmp_path).splitlines()
    assert rows[0] == "| arm | [timit.rates](timit.rates/here.json) |"
    assert rows[3] == f"| dropout, lr 3 | {other['mean']:.1f} ± {other['sd']:.1f} |" and one["name"] in rows[2]


def test_asides_have_a_table_with_the_epoch_at_which_a_training_error_is_reached(toy, tmp_path):
    result = copy.deepcopy(toy) | {"recipe": "cifar10.pools", "data": toy["data"] | {"held_out": True}}
    for arm, train in zip(result["arms"], ([0.9, 0.5, 0.25, 0.3], [0.9, 0.8, 0.7, 0.26], [0.1] * 4), strict=True):
        arm.update(mean=20.0, sd=1.0)
        arm["curve"]["train"] = train
    keep(tmp_path / "cifar10.pools" / "here.json", result)
    rows = tables.asides_table(tmp_path, tmp_path).splitlines()[2:]
    assert [row.rpartition(" | ")[2] for row in rows] == ["3 |", "not in 4 |", "1 |"]
    assert rows[0].startswith("| [cifar10.pools](cifar10.pools/here.json) | 64-8-10 | backprop | 20.0 ± 1.0 | 2 |")
    assert "cifar10.pools" not in tables.choices_table(tmp_path, tmp_path)


def test_errors_with_few_labels_are_shares_with_their_spread(tmp_path):
    rows = [{"labels": 1000, "errors": {"from scratch": [10, 30], "pretrained": [5, 5]}, "n_test": 200}]
    result = {"rows": rows, "data": "mnist", "pictures": 60000, "seeds": 2, "device": "a CPU", "date": "2026-01-02"}
    keep(tmp_path / "few_labels" / "here.json", result)
    table, words = tables.labels_table(tmp_path, tmp_path).split("\n\n")
    assert table.splitlines()[2] == "| [here](few_labels/here.json) | 1,000 | 10.0 ± 7.1 % | 2.5 ± 0.0 % |"
    assert words == "here: MNIST, pretrained on all 60,000 pictures without labels, 2 seeds; a CPU, 2026-01-02."
    rows[0]["errors"] = {"from scratch": [10], "pretrained": [5]}
    keep(tmp_path / "few_labels" / "here.json", result)
    assert "| 1,000 | 5.0 % | 2.5 % |" in tables.labels_table(tmp_path, tmp_path)


def test_a_page_is_filled_between_its_markers_and_nowhere_else(results):
    text = pages.fill(PAGE, results, results.parent)
    assert text.startswith("before\n<!-- figure -->\n![") and text.endswith("<!-- /kept --> |\nafter\n")
    assert "old" not in text
    assert pages.fill(text, results, results.parent) == text
    assert "<!-- kept mnist.quick -->not yet<!-- /kept -->" in text
    assert (
        "<!-- kept mnist.a1 -->[8](results/mnist.a1/8.json): backprop 300.0; dropout 200.0; dropout+input 100.0<!--"
        in text
    )


def test_the_results_table_has_a_row_for_each_net_and_what_the_paper_has_a_figure_for_comes_first(results, toy):
    rows = re.findall(r"^\| (.*) \|$", tables.results_table(results, results.parent), re.MULTILINE)
    arms = " | ".join(f"errors, {arm}" for arm in ("backprop", "dropout", "dropout+input"))
    assert rows[0] == f"experiment | net | {arms} | of | seeds | time of the whole run"
    paper, other = ([cell.strip() for cell in row.split(" | ")] for row in rows[2:])
    assert paper[2:5] == ["300.0 ± 2.5 (paper: 160)", "**200.0 ± 2.5** (paper: 130)", "**100.0 ± 2.5** (paper: 110)"]
    assert other[:2] == ["[digits/here](results/digits/here.json), 4 epochs", "64-8-10"]
    assert other[2:5] == [f"{arm['mean']:.1f} ± {arm['sd']:.1f}" for arm in toy["arms"]]
    assert other[5:] == ["1,000", "2", f"{toy['seconds']:.1f} s, {toy['device']}"]


def test_a_headline_spans_the_nets_of_an_experiment_and_has_the_papers_figures(results, toy):
    keep(results / "mnist.a1" / "9.json", as_fig1(toy, means=(310.0, 190.0, 100.0)))
    title = next(title for title, names in tables.HEADLINES.items() if names == ("mnist.a1",))
    *_, row = tables.headlines_table(results, results.parent).splitlines()
    told = ("300.0 to 310.0 (paper: 160)", "**190.0 to 200.0** (paper: 130)", "**100.0** (paper: 110)")
    assert row == f"| {title} | {' | '.join(told)} | 2 |"


def test_a_headline_is_bold_only_where_every_net_is_beyond_the_spread(results, toy):
    keep(results / "mnist.a1" / "9.json", as_fig1(toy, beyond=False))
    assert "**" not in tables.headlines_table(results, results.parent)


def test_held_out_errors_are_in_the_table_of_choices_only(results):
    assert "mnist.choose" not in tables.results_table(results, results.parent)
    rows = tables.choices_table(results, results.parent / "docs").splitlines()
    link = "[mnist.choose](../results/mnist.choose/8.json)"
    assert rows[2:] == [f"| {link} | 64-8-10 | backprop | 3 | lr 3: 10.0 ± 1.0 (2) | lr 9: 20.0 ± 1.0 (2) |"]


def test_stopped_nets_are_counted_and_an_arm_without_nets_has_no_mean(toy, tmp_path):
    result = copy.deepcopy(toy)
    stop = {"seed": 1, "epoch": 2, "why": "diverged", "layer": 1, "lr": 1.0}
    result["arms"][0].update(seeds=[], errors=[], mean=None, sd=None, stopped=[stop, stop | {"seed": 0}])
    result["comparisons"] = []
    keep(tmp_path / "digits" / "one.json", result)
    assert "| –; 2 stopped |" in tables.results_table(tmp_path, tmp_path)


def test_without_results_the_pages_say_so(tmp_path):
    text = pages.fill(PAGE, tmp_path, tmp_path)
    assert all(
        words in text for words in ("No picture yet", "No result is kept yet", "No choice is kept yet", "not yet")
    )


def test_the_picture_has_the_finding_each_arm_and_the_published_line_on_a_white_card(results, tmp_path):
    page = tmp_path / "README.md"
    page.write_text(PAGE)
    (tmp_path / "docs").mkdir()
    assert pages.rewrite(page, results) == [page, tmp_path / "docs" / "errors.svg"]
    svg = (tmp_path / "docs" / "errors.svg").read_text()
    drawn = xml.fromstring(svg)
    texts = set(drawn.itertext())
    assert "Omitting units takes test errors on MNIST from 300 to 100" in texts
    assert {"backprop 300", "dropout 200", "dropout+input 100", "best published 160"} <= texts
    card = drawn.find("{http://www.w3.org/2000/svg}rect")
    assert card is not None and card.get("fill") == "#ffffff"
    assert "var(" not in svg
    pages.rewrite(page, results)
    assert (tmp_path / "docs" / "errors.svg").read_text() == svg


def test_the_title_claims_no_gain_that_is_not_beyond_the_spread(toy):
    assert pictures.picture_words([as_fig1(toy, beyond=False)])[0].startswith("Test errors on MNIST: backprop 300, ")
    assert pictures.picture_words([as_fig1(toy, means=(90.0, 100.0, 200.0))])[0].startswith("Test errors on MNIST: ")


def test_the_command_needs_a_page(capsys):
    assert pages.main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_seeds_that_differ_by_more_than_their_mean_are_named_one_by_one_and_not_drawn(results, toy):
    result = as_fig1(toy, beyond=False)
    result["arms"][1].update(errors=[116, 8865], mean=4490.5, sd=6186.5)
    keep(results / "mnist.a1" / "8.json", result)
    assert "| 116, 8,865 (paper: 130) |" in tables.results_table(results, results.parent)
    assert {found["recipe"] for found in pictures.pictured(results)} == {"digits"}


def test_made_up_data_is_in_no_table_of_results_and_told_by_time_and_memory(toy, tmp_path):
    made_up = toy | {"recipe": "reuters.size", "data": toy["data"] | {"made_up": True}, "peak_mib": 1234}
    keep(tmp_path / "reuters.size" / "h200.json", made_up)
    assert tables.results_table(tmp_path, tmp_path) == "No result is kept yet."
    assert kept.summary("reuters.size", tmp_path).endswith(f" and 1,234 MiB on {toy['device']}; the data is made up")


def test_baselines_are_shown_beside_their_documents(tmp_path):
    rows = [{"name": "linear SVM", "setting": "C 0.1", "errors": 1234, "n_test": 10_000}]
    keep(tmp_path / "reuters.subset" / "baselines" / "linear.json", {"recipe": "reuters.subset", "rows": rows})
    line = tables.baselines_table(tmp_path, tmp_path).splitlines()[-1]
    link = "[reuters.subset](reuters.subset/baselines/linear.json)"
    assert line == f"| {link} | linear SVM | C 0.1 | 1,234 of 10,000 | 12.34 % |"


def with_arms(toy, recipe, arms):
    """A result of a recipe claims.*: the mean errors of each arm, None where every net was stopped."""
    stopped = toy["arms"][0] | {"errors": [], "mean": None, "sd": None, "seeds": [], "stopped": [{}, {}]}
    made = [
        stopped | {"name": name}
        if mean is None
        else stopped | {"name": name, "mean": mean, "sd": 1.0, "errors": [mean] * 2, "seeds": [0, 1], "stopped": []}
        for name, mean in arms.items()
    ]
    return toy | {"recipe": recipe, "arms": made}


def test_claims_have_a_row_a_setting_and_a_column_a_learning_rate(toy, tmp_path):
    keep(tmp_path / "claims.decaying" / "a.json", with_arms(toy, "claims.decaying", {"decaying, lr 10": 40.0}))
    both = {"constant, lr 1": 50.0, "constant, lr 10": None}
    keep(tmp_path / "claims.constant" / "a.json", with_arms(toy, "claims.constant", both))
    rows = claims.table(claims.TABLES["claims.decaying"], tmp_path, tmp_path).splitlines()
    assert rows[0] == "|  | lr 1 | lr 10 |"
    assert rows[2:4] == ["| decaying |  | 40.0 ± 1.0 |", "| constant | 50.0 ± 1.0 | 2 stopped |"]
    assert claims.table(claims.TABLES["claims.layers"], tmp_path, tmp_path) == claims.EMPTY


def test_the_picture_of_rates_has_a_line_a_learning_rate_and_its_title_the_best_of_them(toy, tmp_path):
    page = tmp_path / "claims.md"
    page.write_text("![](rates.svg)")
    assert pages.rewrite(page, tmp_path) == [page]
    arms = {"rate 0, lr 1": 60.0, "rate 0.5, lr 1": 55.0, "rate 0, lr 3": None, "rate 0.5, lr 3": 45.0}
    for recipe in claims.DRAWN:
        keep(tmp_path / recipe / "a.json", with_arms(toy, recipe, arms))
    assert pages.rewrite(page, tmp_path) == [page, tmp_path / "rates.svg"]
    texts = [*xml.fromstring((tmp_path / "rates.svg").read_text(encoding="utf-8")).itertext()]
    assert "Digits: 60.0 errors where no unit is omitted, 45.0 with half of the hidden ones" in texts
    assert texts.count("lr 1") == texts.count("lr 3") == 2


def test_relatives_are_shown_by_networks_and_by_cases(tmp_path):
    about = {"seconds": 3.0, "device": "a CPU"}
    averaged = [
        {"way": "bagging", "networks": n, "lr": 0.3, "errors": [50 - n, 52 - n], "n_test": 1000} for n in (1, 10)
    ]
    keep(tmp_path / "relatives" / "averaging.json", about | {"comparison": "averaging", "rows": averaged})
    few = [{"data": "digits", "way": w, "cases": 20, "errors": [e], "n_test": 200} for w, e in (("a", 50), ("b", 60))]
    keep(tmp_path / "relatives" / "naive_bayes.json", about | {"comparison": "naive_bayes", "rows": few})
    assert "| bagging, lr 0.3 | 50.0 ± 1.4 | 41.0 ± 1.4 |" in claims.averaging_table(tmp_path, tmp_path)
    assert "| digits | 20 | 25.0 | 30.0 |" in claims.bayes_table(tmp_path, tmp_path)
