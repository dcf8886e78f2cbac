"""The command line as a person or a script meets it: what it prints where, what it answers to mistakes, exit codes."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from toys import finish, no_file_above, outcome, small, written

import meannet
from meannet import claims, console, recipes, screen, typed
from meannet.cli import main
from meannet.config import from_json, to_json

TOY = small("digits", epochs=2)
ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with toy.json and the finished run of it in `run`."""
    here = tmp_path_factory.mktemp("cli")
    assert main(["run", str(written(TOY, here / "toy.json")), "--out", str(here / "run")]) == 0
    return here


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Every test starts where a new user does: an empty folder, and no data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line on stderr with which a wrong request is answered."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as error:
        code = error.code
    printed = capsys.readouterr()
    assert code == 2 and printed.out == "" and printed.err.count("\n") == 1 and printed.err.startswith("meannet: ")
    return printed.err.strip()


def printed_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    """The one JSON document on stdout."""
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_says_once_on_what_and_how_it_computes_and_so_does_its_folder(tmp_path, capsys):
    two = replace(TOY, net=replace(TOY.net, hidden=((5,), (4,))))
    assert main(["run", str(written(two, tmp_path / "two.json")), "--out", "run", "--device", "cpu"]) == 0
    known = json.loads(Path("run/environment.json").read_text())
    line = f"{known['device_name']}; {known['path']} path on {known['threads']} threads, {known['precision']}\n"
    assert capsys.readouterr().out.count(line) == 1


def test_list_names_every_recipe_with_its_section(capsys):
    assert main(["list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line.split()[0] for line in lines[1:]] == list(recipes.RECIPES)
    assert "A.1, Fig. 1" in lines[1 + list(recipes.RECIPES).index("mnist.a1")]


def test_list_as_json_has_a_row_a_recipe(capsys):
    rows = printed_json(capsys, "list")["recipes"]
    assert [row["recipe"] for row in rows] == list(recipes.RECIPES)
    assert rows[0].keys() == {"recipe", "paper", "about", "claims", "kept", "time"}


@pytest.mark.parametrize("recipe", recipes.RECIPES)
def test_show_has_every_setting_and_its_json_is_the_experiment(capsys, recipe):
    assert main(["show", recipe]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^net\.hidden +(\d|none)", shown, re.M) and re.search(r"^optim\.lr +\d", shown, re.MULTILINE)
    assert from_json(printed_json(capsys, "show", recipe)) == recipes.get(recipe)


def test_show_takes_settings(capsys):
    shown = printed_json(capsys, "show", "digits", "--set", "net.hidden=30,20", "--set", "optim.lr=0.5")
    assert shown["net"]["hidden"] == [[30, 20]] and shown["optim"]["lr"] == 0.5


def test_a_run_ends_with_a_table_findings_the_report_and_what_to_try_next(capsys):
    assert main(["run", str(written(TOY, Path("toy.json")))]) == 0
    told = capsys.readouterr()
    table = [line.split() for line in told.out.splitlines() if line.startswith("64-8-8-10  ")]
    assert [row[1] for row in table] == ["backprop", "dropout", "dropout+input"] and all(row[3] == "±" for row in table)
    assert "standard error" in told.out and told.err == ""
    assert told.out.endswith("report: runs/digits/report.html\nnext, try: meannet run mnist.quick\n")
    assert (Path("runs") / "digits" / "report.html").is_file()


def test_runs_without_out_do_not_meet(capsys):
    toy = written(small("digits", epochs=1, samples=0, seeds=(0,)), Path("toy.json"))
    for _ in range(3):
        assert main(["run", str(toy)]) == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["digits", "digits-2", "digits-3"]


def test_a_run_as_json_prints_its_result_and_nothing_else(capsys):
    result = printed_json(capsys, "run", written(TOY, Path("toy.json")), "--out", "run")
    assert result == json.loads(Path("run/result.json").read_text())


def test_a_quick_run_is_small_and_settings_come_after_it(capsys):
    flags = ["--quick", "--set", "net.hidden=4", "--set", "optim.epochs=1", "--set", "samples=0", "--seeds", "1"]
    assert main(["run", "digits", *flags, "--out", "run"]) == 0
    experiment = json.loads(Path("run/experiment.json").read_text())
    assert (experiment["seeds"], experiment["net"]["hidden"], experiment["optim"]["epochs"]) == ([0], [[4]], 1)


def test_the_command_on_record_is_the_one_that_was_given():
    toy = written(small("digits", epochs=1, samples=0, seeds=(0,)), Path("my toy.json"))
    assert main(["run", str(toy), "--out", "run"]) == 0
    assert json.loads(Path("run/environment.json").read_text())["command"] == "meannet run 'my toy.json' --out run"


def test_an_arm_with_its_own_rate_is_pointed_out(capsys):
    toy = written(small("digits", epochs=1, samples=0, seeds=(0,)), Path("toy.json"))
    assert main(["run", str(toy), "--set", "optim.lr=0.5"]) == 0
    assert "dropout has its own lr; to change that too, --set arms.dropout.lr=" in capsys.readouterr().err


def test_an_experiment_in_ones_own_file_runs(capsys):
    Path("mine.py").write_text(
        "from dataclasses import replace\nfrom meannet.config import from_json\nimport json, pathlib\n"
        "toy = replace(from_json(json.loads(pathlib.Path('toy.json').read_text())), recipe='mine')\n"
        "def made():\n    return toy\nnumber = 3\n"
    )
    written(small("digits", epochs=1, samples=0, seeds=(0,)), Path("toy.json"))
    for name in ("./mine.py:toy", "mine.py:made"):
        assert printed_json(capsys, "run", name)["recipe"] == "mine"
    assert "did you mean toy?" in refused(capsys, "run", "./mine.py:tyo")
    assert "not an Experiment but a int" in refused(capsys, "run", "./mine.py:number")
    assert "no file nosuch.py" in refused(capsys, "run", "./nosuch.py:toy")


def test_the_experiment_of_a_run_runs_again_to_the_same_result(done, capsys):
    assert main(["run", str(done / "run" / "experiment.json"), "--out", "again"]) == 0
    assert outcome(Path("again")) == outcome(done / "run")


def test_resuming_a_finished_run_changes_nothing(done, capsys):
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (done / "run").iterdir()}
    assert main(["run", "--resume", str(done / "run")]) == 0
    assert "had already finished" in capsys.readouterr().out
    assert printed_json(capsys, "run", "--resume", done / "run") == json.loads(before["result.json"][0])
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (done / "run").iterdir()} == before


def test_a_finished_run_without_its_page_gets_it_on_resume_as_one_that_was_killed_while_it_drew(done, capsys):
    shutil.copytree(done / "run", "run")
    Path("run/report.html").unlink()
    Path("run/.report.html.0a1b2c3d.tmp").write_text("<html")
    with no_file_above(1000):
        assert main(["run", "--resume", "run"]) == 1
    told = capsys.readouterr().err
    assert "File too large: run/report.html" in told and "meannet run --resume run" in told and told.count("\n") == 1
    assert main(["run", "--resume", "run"]) == 0
    assert "report: run/report.html\n" in capsys.readouterr().out
    assert "<html" in Path("run/report.html").read_text()
    assert {path.name for path in Path("run").iterdir()} == {path.name for path in (done / "run").iterdir()}


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"{", b"\xff", b'{"arms": 3}', b'{"arms": [], "data": {}}'])
def test_a_broken_result_is_named_and_written_anew_without_it(done, capsys, content):
    shutil.copytree(done / "run", "run")
    Path("run/result.json").write_bytes(content)
    assert main(["run", "--resume", "run"]) == 2
    told = capsys.readouterr().err
    assert "run/result.json" in told and told.count("\n") == 1
    Path("run/result.json").unlink()
    assert main(["run", "--resume", "run"]) == 0
    assert outcome(Path("run")) == outcome(done / "run")


def test_eval_sets_the_mean_network_beside_sampled_ones(done, capsys):
    document = printed_json(capsys, "eval", done / "run", "--samples", 3)
    assert document["samples"] == 3 and len(document["rows"]) == 6
    assert document == json.loads((done / "run" / "eval.json").read_text())
    errors = [error for arm in outcome(done / "run")["result"]["arms"] for error in arm["errors"]]
    assert [row["mean_network"] for row in document["rows"]] == errors
    assert all(row["counts"] == [1, 2, 3] and len(row["geometric"]) == 3 for row in document["rows"])
    assert main(["eval", str(done / "run"), "--samples", "2"]) == 0
    assert re.search(r"64-8-8-10 +dropout +geometric( +\d+\.\d){3}", capsys.readouterr().out)


def test_report_writes_one_page(done, capsys):
    assert main(["report", str(done / "run"), "-o", "page.html"]) == 0
    assert "<html" in Path("page.html").read_text() and "page.html" in capsys.readouterr().out


def test_claims_that_hold_exit_0_and_one_that_fails_exits_1(capsys, monkeypatch):
    found = printed_json(capsys, "claims")["claims"]
    assert all(claim.keys() >= {"name", "paper", "holds", "value", "bound"} and claim["holds"] for claim in found)
    monkeypatch.setattr(claims, "check_all", lambda: [found[0] | {"holds": False}, *found[1:]])
    assert main(["claims"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAILS") and lines[2].startswith("holds") and len(lines) == 2 * len(found)


def test_data_is_listed_and_checked(capsys):
    rows = {row["name"]: row for row in printed_json(capsys, "data", "list")["data"]}
    assert rows["digits"]["present"] and not rows["mnist"]["present"]
    assert rows["mnist"]["where"].startswith(str(Path.cwd() / "data"))
    assert main(["data", "list"]) == 0 and "digits" in capsys.readouterr().out
    assert printed_json(capsys, "data", "check", "digits")["files"][0]["ok"]
    assert main(["data", "check"]) == 1
    assert "BAD mnist" in capsys.readouterr().out


def test_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"meannet {meannet.__version__}\n"


@pytest.mark.parametrize(
    "command", ["", "list", "show", "run", "eval", "report", "claims", "data", "predict", "export", "bench"]
)
def test_every_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0 and "usage: meannet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("rnu digits", "no command 'rnu'; did you mean run?"),
        ("", "COMMAND"),
        ("run mnist.quikc", "no recipe 'mnist.quikc'; did you mean mnist.quick?"),
        ("show digit", "no recipe 'digit'; did you mean digits or digits.choose?"),
        ("run mnist.a2", "no recipe 'mnist.a2'; did you mean mnist.a2_dbn or mnist.a2_dbm?"),
        ("run", "name a recipe or --resume DIR; there is digits"),
        ("run digits --set net.hiden=3", "no setting 'net.hiden'; did you mean hidden?"),
        ("run digits --set optim.lr=abc", "optim.lr must be a number, not 'abc'"),
        ("run digits --set optim.lr=-1", "optim.lr must be above 0, not -1"),
        ("run digits --set optim.epochs=1.5", "optim.epochs must be a whole number, not '1.5'"),
        ("run digits --set optim.batch=99999999999999999999", "optim.batch must be from 1 to 2147483647"),
        ("run digits --set dropout.hidden=1", "dropout.hidden must be a probability of omission"),
        ("run digits --set net.units=relu", "net.units must be one of logistic, rectified, not 'relu'"),
        ("run digits --set arms.dropuot.lr=1", "no arm 'dropuot' in arms.dropuot.lr; did you mean dropout?"),
        ("run digits --set optim.lr", "--set takes path=value, not 'optim.lr'"),
        ("run digits --set seeds=1,1", "seeds must be seeds that differ"),
        ("run digits --seeds 0", "--seeds must be 1 or more, not 0"),
        ("run digits --seeds two", "invalid int value: 'two'"),
        ("run digits --sees 2", "meannet run takes no '--sees'; did you mean --seeds?"),
        ("run digits mnist.a1", "meannet run takes no 'mnist.a1'"),
        ("run digits --device tpu", "--device must be one of auto, cpu, cuda, not 'tpu'"),
        ("run digits --path quick", "--path must be one of auto, plain, fast, not 'quick'"),
        ("run digits --save-minutes 0", "--save-minutes must be above 0"),
        ("run digits --save-epochs 0", "--save-epochs must be 1 or more, not 0"),
        ("run nosuch.json", "cannot read nosuch.json: No such file or directory"),
        ("run --resume nosuch", "there is no run folder nosuch"),
        ("run --resume .", "no experiment.json"),
        ("run digits --resume x", "drop RECIPE"),
        ("run --resume x --seeds 0", "drop --seeds"),
        ("run --resume x --set optim.lr=1", "drop --set"),
        ("run --resume x --out y", "drop --out"),
        ("run --resume x --quick", "drop --quick"),
        ("eval nosuch", "there is no run folder nosuch"),
        ("eval nosuch --samples 0", "must be 1 or more, not 0"),
        ("report nosuch -o page.html", "there is no run folder nosuch"),
        ("report nosuch", "-o/--out"),
        ("report nosuch -o run/result.json", "run/result.json must end in .html, as in run/result.html"),
        ("run digits --seed 3", "meannet run takes no '--seed'; did you mean --seeds?"),
        ("run qqq", "no recipe 'qqq'; `meannet list` shows all"),
        ("list mnits", "no recipe begins with 'mnits'; did you mean"),
        ("predict nosuch", "required: FILE"),
        ("predict nosuch x.npy", "there is no nosuch; name a run folder or an estimator that was saved"),
        ("predict nosuch x.npy --sed 0", "meannet predict takes no '--sed'; did you mean --seed?"),
        ("export nosuch --to onnx", "-o/--out"),
        ("export nosuch --to onnx -o a.onnx", "there is no nosuch"),
        ("export nosuch --to onx -o a.onnx", "to must be one of onnx, pt2, torch, not 'onx'; did you mean onnx?"),
        ("data fetc mnist", "no action 'fetc'; did you mean fetch?"),
        ("data fetch mnst", "no data set 'mnst'; did you mean mnist?"),
        ("data fetch", "name the data set to fetch"),
        ("data list mnist", "`meannet data check mnist` is about one"),
        ("data prepare", "only imagenet is prepared: meannet data prepare imagenet SRC"),
        ("data check mnst", "no data set 'mnst'; did you mean mnist?"),
    ],
)
def test_a_wrong_request_gets_one_line_and_exit_2_and_leaves_nothing(capsys, arguments, answer):
    assert answer in refused(capsys, *arguments.split())
    assert not [path for path in Path.cwd().rglob("*") if path.is_file()]


def test_a_folder_that_is_there_is_refused(done, capsys):
    line = refused(capsys, "run", "digits", "--out", done / "run")
    assert f"meannet run --resume {done / 'run'}" in line


@pytest.mark.parametrize("content", ["", "{", "[]", '{"recipe": "x"}', '{"rceipe": 3}', "\x00"])
def test_a_broken_experiment_file_is_refused(capsys, content):
    Path("broken.json").write_text(content)
    refused(capsys, "run", "broken.json")
    Path("run").mkdir()
    Path("run/experiment.json").write_text(content)
    assert "experiment.json" in refused(capsys, "run", "--resume", "run")


def test_another_json_file_of_a_run_is_not_taken_for_an_experiment(done, capsys):
    line = refused(capsys, "run", done / "run" / "result.json")
    assert f"{done / 'run' / 'result.json'} is not an experiment that runs: unknown field" in line


def test_recipes_can_be_listed_by_how_their_names_begin(capsys):
    names = [row["recipe"] for row in printed_json(capsys, "list", "mnist")["recipes"]]
    assert "mnist.a1" in names and all(name.startswith("mnist") for name in names)


def test_an_unfinished_run_cannot_be_evaluated_yet(done, capsys):
    Path("run").mkdir()
    Path("run/experiment.json").write_bytes((done / "run" / "experiment.json").read_bytes())
    assert "the run has not finished; `meannet run --resume run`" in refused(capsys, "eval", "run")


def test_names_are_printed_as_they_are(capsys):
    """Square brackets and colons mean something to the library that draws the tables."""
    toy = small("digits", epochs=1, samples=1, seeds=(0,))
    odd = toy.arms[0].__class__(name="[red]a :smile:")
    written(from_json(to_json(toy) | {"arms": [to_json(odd)]}), Path("toy.json"))
    assert main(["run", "toy.json", "--out", "runs/[b]x"]) == 0
    told = capsys.readouterr().out
    assert "64-8-8-10  [red]a :smile:" in told and "report: runs/[b]x/report.html" in told
    assert main(["eval", "runs/[b]x", "--samples", "1"]) == 0
    assert "[red]a :smile:" in capsys.readouterr().out


def test_there_is_no_colour_away_from_a_terminal_and_none_with_no_color(done):
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "meannet", "show", "digits"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True, env={**environment, "NO_COLOR": ""})
    assert ESCAPE not in plain.stdout
    coloured = re.compile(rf"{ESCAPE}\[(3|4|9|10)\d")
    assert not coloured.search(on_terminal(command, environment))


def on_terminal(command: list[str], environment: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            part = b""
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait() == 0
    return seen.decode()


def test_a_reader_that_leaves_early_is_not_an_error_worth_a_word():
    command = f"{sys.executable} -m meannet list --json | head -1; {sys.executable} -m meannet list | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == "" and done.stdout.startswith("{\nrecipe")


def test_a_pipe_that_breaks_elsewhere_is_an_error_that_is_named(monkeypatch, capfd):
    def write_to_nobody(_):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            os.write(writer, b"?")
        finally:
            os.close(writer)

    monkeypatch.setattr("meannet.bench.tell.bench_and_tell", write_to_nobody)
    assert main(["bench"]) == 1
    print("standard output is still there")
    assert capfd.readouterr() == ("standard output is still there\n", "meannet: [Errno 32] Broken pipe\n")


def test_a_run_goes_on_when_its_reader_leaves(done, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as many as the run beside which it is set; result.json tells
    experiment = done / "run" / "experiment.json"
    for sink, why in (("| head -1; exit ${PIPESTATUS[0]}", "Broken pipe"), ("> /dev/full", "No space left on device")):
        command = f"{sys.executable} -m meannet run {experiment} --out {tmp_path / why.split()[0]} {sink}"
        finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert finished.returncode == 0
        assert finished.stderr == f"meannet: nothing more can be shown ({why}); the run goes on\n"
        assert outcome(tmp_path / why.split()[0]) == outcome(done / "run")


def test_streams_that_are_closed_are_no_error(done):
    command = (
        f"{sys.executable} -m meannet list >&- 2>&- && {sys.executable} -m meannet run --resume {done / 'run'} >&-"
    )
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_what_eval_found_is_shown_where_it_cannot_be_kept(done, capsys):
    shutil.copytree(done / "run", "run")
    Path("run/eval.json").unlink(missing_ok=True)
    Path("run/eval.json/full").mkdir(parents=True)
    assert main(["eval", "run", "--samples", "1"]) == 1
    told = capsys.readouterr()
    assert "mean network" in told.out and "run/eval.json" in told.err


def test_a_terminal_without_the_letters_is_no_error(done):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "meannet", "list"]
    finished = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert finished.stderr == b"" and b"digits" in finished.stdout


def test_a_process_of_its_own_does_the_same(done, tmp_path):
    assert finish("run", "--resume", done / "run", "--json", cwd=tmp_path) == 0
    assert json.loads((tmp_path / "stdout").read_text())["recipe"] == "digits" and not (tmp_path / "stderr").read_text()


def test_a_long_run_says_after_two_epochs_how_long_it_will_take(capsys):
    from meannet.options import Progress
    from meannet.train import Epoch

    with console.following(screen.console()) as show:
        for done in (1, 2, 3):
            epoch = Epoch(epoch=done, train_loss=[1.0], train_error=[0.5], lr=[1.0], momentum=0.5)
            show(Progress("784-8-10", epoch, 3000, {}, 10.0 + 30 * done))
            show(Progress("784-4-10", epoch, 3000, {}, 10.0 + 0.1 * done))
    assert capsys.readouterr().out == "784-8-10: some 24 h 59 min for the other 2,998 epochs\n"


def test_commands_are_told_as_they_can_be_typed(monkeypatch):
    told = "meannet run --resume runs/meannet"
    monkeypatch.setattr(sys, "argv", ["env dir/bin/meannet", "run"])
    monkeypatch.setattr(typed.shutil, "which", {"meannet": None}.get)
    assert typed.as_typed(told) == "'env dir/bin/meannet' run --resume runs/meannet"
    monkeypatch.setattr(typed.shutil, "which", {"meannet": "/usr/bin/meannet"}.get)
    assert typed.as_typed(told) == told
