"""The pages say what is so: their code runs, their commands parse, their files, recipes, claims and links exist."""

import ast
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from meannet import __version__, claims, cli, recipes
from meannet.config import Data
from meannet.core import schedule
from meannet.core.sgd import step_size
from meannet.data import cifar10, digits, load, mnist
from meannet.nn import dense
from meannet.train import Plain

PROJECT = Path(__file__).resolve().parents[1]
PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    PROJECT / "CHANGELOG.md",
    *sorted(PROJECT.glob("docs/**/*.md")),
]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
MAP = (PROJECT / "docs" / "paper-map.md").read_text(encoding="utf-8")
CHEAP = ("--version", "list", "show", "claims", "data list", "run digits --quick")
EXAMPLE = "examples/my_net.py"


def blocks(language):
    """Every code block of a language, with where it stands."""
    found = []
    for page in PAGES:
        for number, code in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
            found.append(pytest.param(code, id=f"{page.name}-{number}"))
    return found


def lines(first):
    """Lines of shell blocks that start with this command, without it."""
    found = [line for block in blocks("sh") for line in block.values[0].splitlines()]
    return [line.removeprefix(f"{first} ") for line in found if line.split()[:1] == [first]]


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("code", [block for block in blocks("python") if "a net from scratch has" in block.values[0]])
def test_with_few_labels_a_stack_is_worth_what_the_page_says(code):
    names = {"__name__": "block"}
    exec(compile(code, "block", "exec"), names)
    X, y, scaled = names["X"], names["y"], names["X"] / names["X"].max()
    pretrained, scratch = names.get("few", names["clf"]), names["DropoutClassifier"](random_state=0)
    assert X.max() in (1, 16) and pretrained.score(scaled[100:], y[100:]) == pytest.approx(0.83, abs=0.02)
    assert scratch.fit(scaled[:100], y[:100]).score(scaled[100:], y[100:]) == pytest.approx(0.79, abs=0.02)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "block"}
    exec(compile(code, "block", "exec"), names)
    assert len(names) > 2


@pytest.mark.parametrize("line", lines("meannet"))
def test_commands_of_shell_blocks_parse_and_name_what_there_is(line, monkeypatch, capsys):
    monkeypatch.chdir(PROJECT)
    arguments = shlex.split(line)
    if arguments == ["--version"]:
        with pytest.raises(SystemExit, match="0"):
            cli.parser().parse_args(arguments)
        assert __version__ in capsys.readouterr().out
        return
    options = cli.parser().parse_args(arguments)
    if arguments[0] == "run" and options.recipe:
        assert cli.chosen(options).seeds
    elif arguments[0] == "show":
        assert recipes.get(options.recipe)


@pytest.mark.parametrize("line", [line for line in lines("meannet") if line.startswith(CHEAP[1:])])
def test_cheap_commands_run(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(line)) == 0
    assert capsys.readouterr().out


def test_every_make_target_that_is_named_exists():
    named = {target for line in lines("make") for target in line.split()}
    named |= {target for page in PAGES for target in re.findall(r"`make (\w+)`", page.read_text("utf-8"))}
    targets = set(re.findall(r"^(\w+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    assert {"run", "test"} <= named <= targets


def test_the_command_table_is_that_of_the_command_line():
    commands = next(action.choices for action in cli.parser()._actions if action.choices)
    assert re.findall(r"^\| `meannet (\w+)", README, re.MULTILINE) == list(commands)


def test_the_tree_lists_what_exists_and_every_file_of_the_package():
    page = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = re.search(r"```text\n(README\.md .*?)```", page, re.DOTALL)
    assert tree
    listed, folders = [], []
    for line in tree[1].splitlines():
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        folders[depth:] = [name] if name.endswith("/") else []
        listed.append("".join(folders) if name.endswith("/") else "".join(folders[:depth]) + name)
    assert [path for path in listed if not (PROJECT / path).exists()] == []
    package = [path for path in (PROJECT / "src" / "meannet").rglob("*") if path.suffix in (".py", ".html", ".typed")]
    assert {path.relative_to(PROJECT).as_posix() for path in package} - set(listed) == set()


def test_imports_point_the_way_that_the_page_says_within_functions_too():
    page = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    chain = re.search(r"Imports point one way: (.*?)\.", page, re.DOTALL)
    assert chain
    rank = {name: k for k, part in enumerate(chain[1].split("←")) for name in re.findall(r"`(\w+)`", part)}
    wrong = []
    for path in (PROJECT / "src" / "meannet").rglob("*.py"):
        own = path.relative_to(PROJECT / "src" / "meannet").with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if own in rank else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("meannet"):
                names = (
                    [alias.name for alias in node.names] if node.module == "meannet" else [node.module.split(".")[1]]
                )
                wrong += [(own, name) for name in names if rank.get(name, -1) > rank[own]]
    assert len(rank) > 12 and wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    inside = [target.partition("#")[0] for target in targets if not target.startswith("https://")]
    assert [target for target in inside if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_kept_files_that_a_page_names_exist(page):
    named = re.findall(r"`(results/[a-z][^`\s]+\.json)`", page.read_text(encoding="utf-8"))
    assert [path for path in named if not (PROJECT / path).exists()] == []


def test_the_paper_map_names_every_recipe_and_only_recipes_that_exist():
    named = set(re.findall(r"`((?:digits|mnist|timit|reuters|cifar10|imagenet)(?:\.\w+)?|claims\.\w+)`", MAP)) | set(
        re.findall(r"<!-- kept ([\w.]+) -->", MAP)
    )
    assert named == set(recipes.RECIPES)


def test_the_paper_map_names_every_claim():
    assert [claim["name"] for claim in claims.check_all() if f"| {claim['name']} |" not in MAP] == []


def test_the_paper_map_has_every_section_and_figure():
    assert [figure for figure in range(1, 8) if f"Fig. {figure}" not in MAP] == []
    assert [
        section for section in ("A.1", "A.2", "A.3", *"BCDEFGH") if not re.search(rf"(## |\| ){section}\b", MAP)
    ] == []


def test_what_the_pages_say_of_recipes_and_data_is_so():
    demonstration = recipes.get("digits")
    assert (len(demonstration.arms), len(demonstration.seeds)) == (3, 10)
    assert f"three arms, ten seeds; {demonstration.time}" in words(README)
    held_out = (
        f"{mnist.N_HELD_OUT:,} of MNIST's, {cifar10.N_HELD_OUT:,} of CIFAR-10's, {digits.N_HELD_OUT} of the digits"
    )
    assert held_out in words(MAP)


def test_the_version_is_the_same_everywhere():
    assert f"\nversion: {__version__}\n" in (PROJECT / "CITATION.cff").read_text()
    assert f"\n## [{__version__}]" in (PROJECT / "CHANGELOG.md").read_text()


def test_the_example_is_short_and_runs(tmp_path, monkeypatch):
    from meannet import run

    monkeypatch.chdir(PROJECT)
    assert len(Path(EXAMPLE).read_text().splitlines()) < 60
    whole = recipes.get(f"{EXAMPLE}:my_net")
    toy = replace(whole, optim=whole.optim.compressed(20), seeds=(0, 1))
    result = run(toy, tmp_path / "toy")
    assert [arm["name"] for arm in result["arms"]] == [arm.name for arm in whole.arms]
    assert all(arm["mean"] < 0.5 * arm["n_test"] for arm in result["arms"])


def test_the_method_in_plain_numpy_takes_the_packages_steps_and_makes_its_mean_network():
    """From the same weights, all cases in each mini-batch and none omitted: no random number has a part in it."""
    path = PROJECT / "examples" / "dropout_in_numpy.py"
    assert len(path.read_text().splitlines()) < 90
    plain, optim = runpy.run_path(str(path)), recipes.get("digits").optim
    cases = load(Data(name="digits"), say=print).train
    x, y, limit = cases.inputs.double(), cases.targets, 0.04

    def fleet(rates, weights, biases):
        per_layer = [torch.tensor([[rate]], dtype=torch.float64) for rate in rates]
        made = dense.initial_fleet(plain["SIZES"], [0], per_layer, units="rectified", dtype=torch.float64)
        for own, given in zip((*made.weights, *made.biases), (*weights, *biases), strict=True):
            own[0] = torch.from_numpy(given)
        return made

    def trained(epochs):
        return plain["train"](x.numpy(), y.numpy(), (0, 0, 0), optim.lr, 0, epochs, len(x), limit)

    ours = fleet((0, 0, 0), *trained(0))
    engine = Plain(ours, x, y, len(x), [limit])
    for epoch in range(40):
        momentum = schedule.momentum(epoch, start=0.5, end=0.99, ramp=optim.momentum_epochs)
        rate = schedule.learning_rate(epoch, start=optim.lr, decay=optim.decay)
        engine.epoch(epoch, [step_size("a1", rate, momentum)], momentum, lambda: False)
    weights, biases = trained(40)
    assert any(np.isclose((weight**2).sum(1), limit).any() for weight in weights[:-1])  # the bound has been at work
    for own, theirs in zip((*ours.weights, *ours.biases), (*weights, *biases), strict=True):
        torch.testing.assert_close(own[0], torch.from_numpy(theirs), rtol=1e-9, atol=1e-12)

    rates, drawn = (0.2, 0.5, 0.5), np.random.default_rng(0)
    weights, biases = ([drawn.normal(size=part.shape) for part in parts] for parts in (weights, biases))
    answers = fleet(rates, weights, biases).mean_outputs(x[None])[0].argmax(1)
    assert plain["errors"](x.numpy(), answers.numpy(), weights, biases, rates) == 0
    assert plain["errors"](x.numpy(), answers.numpy(), weights, biases, (0, 0, 0)) > 0


def test_the_example_of_a_torch_model_is_short_and_learns(capsys):
    path = PROJECT / "examples" / "own_torch_model.py"
    assert len(path.read_text().splitlines()) < 60
    before = torch.get_rng_state()
    mean, sampled = runpy.run_path(str(path))["main"](epochs=12)
    torch.set_rng_state(before)
    assert max(mean, sampled) < 300 and f"mean network {mean}" in capsys.readouterr().out


def example(name):
    path = PROJECT / "examples" / f"{name}.py"
    assert len(path.read_text().splitlines()) < 75
    return runpy.run_path(str(path))


def test_the_example_of_a_table_takes_words_and_numbers_and_says_what_is_wrong_with_a_file(tmp_path, capsys):
    main = example("own_table")["main"]
    rows = [f"{'red' if k % 2 else 'blue'},{k % 7},{'yes' if k % 2 else 'no'}" for k in range(40)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["colour,size,bought", *rows]))
    assert main(str(path), "bought", epochs=20) == (0.0, 0.0)
    assert "net: 0.0% of rows wrong" in capsys.readouterr().out
    for column, text in (("price", "no column 'price'"), ("", "no column ''")):
        done = subprocess.run(
            [sys.executable, PROJECT / "examples" / "own_table.py", path, column], capture_output=True, text=True
        )
        assert done.returncode == 1 and text in done.stderr and done.stderr.count("\n") == 1
    assert main(epochs=20)[0] < 0.1


def test_the_example_of_uncertainty_finds_errors_where_networks_disagree(capsys):
    names = example("uncertainty")
    doubted, others = names["classes"](epochs=20)
    assert doubted > 5 * others
    near, far = names["numbers"](epochs=20)
    assert far > 2 * near and "diabetes" in capsys.readouterr().out


def test_the_example_of_few_labels_is_better_with_pretraining(tmp_path, capsys):
    example = runpy.run_path(str(PROJECT / "examples" / "few_labels.py"))
    (row,) = example["main"](labels=[40], seeds=1, epochs=20, out=tmp_path / "curve.svg")
    assert row["errors"]["pretrained"][0] < row["errors"]["from scratch"][0] < 500
    assert "40 labels, errors of 1,000" in capsys.readouterr().out and "<svg" in (tmp_path / "curve.svg").read_text()


@pytest.mark.parametrize("form", ["folder", "table"])
def test_the_example_of_own_texts_is_short_and_learns(form, tmp_path, capsys):
    path = PROJECT / "examples" / "own_texts.py"
    assert len(path.read_text().splitlines()) < 60
    words = {
        "grain": "wheat corn harvest tonnes",
        "earn": "profit share dividend quarter",
        "ship": "port vessel strike",
    }
    rows = []
    for label, own in words.items():
        (tmp_path / label).mkdir()
        for number in range(30):
            said = f"{own.split()[number % 3]} rose, said {own.split()[number % 2]}; day {number} of the market report"
            (tmp_path / label / f"{number}.txt").write_text(said)
            rows.append(f'{label},"{said}"')
    (tmp_path / "table.csv").write_text("label,text\n" + "\n".join(rows))
    given = tmp_path if form == "folder" else tmp_path / "table.csv"
    right = runpy.run_path(str(path))["main"](str(given), n_words=16, epochs=30)
    assert right > 0.9 and "72 texts, 14 words" in capsys.readouterr().out
