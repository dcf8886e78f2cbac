"""The page as a file: what it says, what it refuses, that it stays text and stands alone."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from meannet import report
from meannet.config import Arm


class Reader(HTMLParser):
    """Text, tags and attributes of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(page.read_text())
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def run(fabricate, tmp_path_factory) -> Path:
    return fabricate(tmp_path_factory.mktemp("runs") / "full")


@pytest.fixture(scope="module")
def page(run: Path) -> Reader:
    report.write([run], run.parent / "full.html")
    return Reader(run.parent / "full.html")


def test_the_page_says_what_was_found_and_what_the_paper_says(page: Reader, run: Path):
    arms = {arm["name"]: arm for arm in json.loads((run / "result.json").read_text())["arms"]}
    ours = arms["dropout+input"]
    assert f"dropout+input makes {ours['mean']:.1f} ± {ours['sd']:.1f} errors of 10,000" in page.text
    assert "better beyond the spread" in page.text
    assert f"The paper’s figure for dropout+input is 110; ours is {ours['mean']:.1f}, at or below it." in page.text
    for part in ("A.1, Fig. 1", "meannet run mnist.made_up --seeds 3", "NVIDIA H200", "9f86d081884c", "2.13.0"):
        assert part in page.text
    assert page.tags.count("h1") == 1
    assert not re.search(r"[a-z]{2}\.[A-Z][a-z]", page.text)  # sentences keep their space


def test_settings_are_listed_as_different_left_open_or_the_papers(page: Reader):
    different, _, rest = page.text.partition("Settings that differ from the paper")[2].partition(
        "Left open by the paper"
    )
    left_open, _, every = rest.partition("All settings")
    assert "optim.epochs 300 3000 A.1" in different and "optim.lr" not in different
    assert "net.units = logistic Not stated." in left_open and "dropout.hidden" not in left_open
    assert "optim.limit 15 15 A.1, a squared length" in every


def test_the_page_asks_for_nothing_from_elsewhere(page: Reader):
    assert not {"script", "iframe", "object", "embed"} & set(page.tags)
    links = [
        value for name, value in page.attributes if name in ("src", "href", "xlink:href", "srcset", "data", "action")
    ]
    assert links and all(value.startswith(("#", "data:")) for value in links)
    assert not [value for name, value in page.attributes if name == "style" and "url(h" in value]


def test_no_id_is_used_twice_and_each_reference_has_one(fabricate, run: Path, tmp_path: Path):
    report.write([run, run, fabricate(tmp_path / "half", until=40)], tmp_path / "page.html")
    page = Reader(tmp_path / "page.html")
    ids = [value for name, value in page.attributes if name == "id"]
    text = (tmp_path / "page.html").read_text()
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([\w.-]+)', text)) <= set(ids)


def test_names_stay_text_wherever_they_come_from(fabricate, experiment, tmp_path: Path):
    evil = "<script>alert(1)</script>"
    hidden = tuple(replace(arm, name=f"{arm.name} $x_1$ {evil}", lr=1.0) for arm in experiment.arms)
    named = replace(experiment, recipe=evil, paper=evil, about=f'"{evil}', arms=hidden, claims=())
    run = fabricate(tmp_path / "run", named)
    (run / "environment.json").write_text(json.dumps({"command": evil, "versions": {evil: evil}, "python": evil}))
    report.write([run], tmp_path / "page.html")
    page = Reader(tmp_path / "page.html")
    assert "script" not in page.tags
    assert page.text.count(evil) > 20
    assert not any(name.startswith("on") for name, _ in page.attributes)


def test_an_unfinished_run_gives_a_page_that_says_so(fabricate, tmp_path: Path):
    report.write([fabricate(tmp_path / "half", until=80)], tmp_path / "page.html")
    page = Reader(tmp_path / "page.html")
    assert "This run is unfinished. The record ends at epoch 80 of 300" in page.text
    assert f"meannet run --resume {tmp_path / 'half'}" in page.text
    assert "beyond the spread" not in page.text


def test_a_run_with_nothing_on_record_yet_gives_a_page(fabricate, tmp_path: Path):
    run = fabricate(tmp_path / "new", until=0)
    for name in ("metrics.jsonl", "state.safetensors", "environment.json"):
        (run / name).unlink()
    report.write([run], tmp_path / "page.html")
    assert "No epoch is on record yet." in Reader(tmp_path / "page.html").text


def test_a_stopped_net_is_named_and_left_out_of_the_mean(fabricate, tmp_path: Path):
    report.write([fabricate(tmp_path / "run", stopped=True)], tmp_path / "page.html")
    text = Reader(tmp_path / "page.html").text
    assert "Stopped in epoch 12 at learning rate 1: 784-800-800-10, backprop, seed 1, layer 1" in text
    assert "over 2 seeds: better beyond the spread" in text


def test_one_arm_and_one_seed_give_a_page_without_a_judgement(fabricate, experiment, tmp_path: Path):
    alone = replace(experiment, arms=(Arm(name="dropout", hidden=True),), seeds=(7,), claims=())
    report.write([fabricate(tmp_path / "run", alone)], tmp_path / "page.html")
    text = Reader(tmp_path / "page.html").text
    assert "over 1 seed: no other arm to compare with." in text and "Judgement" not in text


def test_several_runs_have_a_summary_with_links_to_their_sections(fabricate, experiment, run: Path, tmp_path: Path):
    two = replace(experiment, recipe="two nets", net=replace(experiment.net, hidden=((800, 800), (1200, 1200))))
    report.write([run, fabricate(tmp_path / "two", two)], tmp_path / "page.html")
    page = Reader(tmp_path / "page.html")
    assert page.text.count("2 runs") == 1 and "dropout+input beats backprop beyond the spread on both nets" in page.text
    assert {("href", "#run-1"), ("href", "#run-2"), ("id", "run-1"), ("id", "run-2")} <= set(page.attributes)


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path):
    for name in ("a.html", "b.html"):
        report.write([run], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_failed_report_leaves_the_old_page_and_nothing_else(run: Path, tmp_path: Path, monkeypatch):
    out = tmp_path / "page.html"
    out.write_text("old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match=r"disk full: .*page.html"):
        report.write([run], out)
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]


def test_what_is_missing_or_broken_is_said_in_one_line(fabricate, experiment, tmp_path: Path):
    small = replace(experiment, optim=replace(experiment.optim, epochs=5), seeds=(0,), show_features=False)
    broken = {
        "no run folder": lambda run: run.rename(run.with_name("moved")),
        "it has no experiment.json": lambda run: (run / "experiment.json").unlink(),
        "unknown field experiment.recipes": lambda run: (run / "experiment.json").write_text('{"recipes": 1}'),
        "result.json is broken": lambda run: (run / "result.json").write_text('{"recipe": '),
        "it has no seconds": lambda run: (run / "result.json").write_text("{}"),
        "not a JSON object": lambda run: (run / "environment.json").write_text("[]"),
        "rows has no net": lambda run: (run / "eval.json").write_text('{"rows": [{}]}'),
        "has no metrics.jsonl": lambda run: (run / "metrics.jsonl").unlink(),
        "metrics.jsonl, line 1": lambda run: (run / "metrics.jsonl").write_text('{"epoch"\n{}\n'),
        "cannot be read": lambda run: (run / "state.safetensors").write_bytes(b"\x10"),
    }
    for number, (says, damage) in enumerate(broken.items()):
        run = fabricate(tmp_path / f"run{number}", small)
        damage(run)
        with pytest.raises(ValueError, match=says) as error:
            report.write([run], tmp_path / "page.html")
        assert "\n" not in str(error.value) and str(run) in str(error.value)
    assert not (tmp_path / "page.html").exists()


def test_a_place_that_cannot_be_written_to_is_refused(run: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="is a folder"):
        report.write([run], tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        report.write([run], tmp_path / "none" / "page.html")
    with pytest.raises(ValueError, match="at least one run"):
        report.write([], tmp_path / "page.html")


def test_without_matplotlib_the_remedy_is_named(run: Path, tmp_path: Path):
    script = """
import sys
from pathlib import Path
sys.modules["matplotlib"] = None
from meannet import report
try:
    report.write([Path(sys.argv[1])], Path(sys.argv[2]))
except ValueError as error:
    print(error)
"""
    arguments = [sys.executable, "-c", script, run, tmp_path / "page.html"]
    said = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    assert said == "the report needs matplotlib: pip install 'meannet[report]'\n"


def test_the_report_needs_no_torch_and_its_tables_no_matplotlib(run: Path, tmp_path: Path):
    script = """
import sys
from pathlib import Path
import meannet.report.tables, meannet.report.findings
assert not {"torch", "matplotlib"} & set(sys.modules)
meannet.report.write([Path(sys.argv[1])], Path(sys.argv[2]))
assert not {"torch", "sklearn", "matplotlib.pyplot"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script, run, tmp_path / "page.html"], check=True)
