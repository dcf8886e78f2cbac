"""A sweep: what it searches and what it leaves alone, whom it asks, how it goes on, and what it says."""

import fcntl
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from toys import finish, small, start, written

from meannet import cli, data, recipes
from meannet import experiment as experiments
from meannet.cli import main
from meannet.config import Claim, Experiment, from_json
from meannet.device import OutOfMemory
from meannet.sweep import plan as plans
from meannet.sweep import tell
from meannet.sweep.plan import Draw, Plan, as_set, planned, swept_arm
from meannet.sweep.study import Proposals, without_password
from meannet.sweep.tell import proposed

TOY = small("digits", epochs=2, samples=0, seeds=(0, 1, 2))
LONG = small("digits", epochs=60, samples=0, record_every=20)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))


def sweep(experiment: Experiment, *arguments: object, code: int = 0) -> dict:
    """`meannet sweep` of an experiment in this process; what sweep.json says after it."""
    toy = written(experiment, Path("toy.json"))
    assert main(["sweep", str(toy), "--out", "swept", *map(str, arguments)]) == code
    return json.loads(Path("swept/sweep.json").read_text())


def timeless(document: dict) -> list[dict]:
    return [{**trial, "seconds": 0} for trial in document["trials"]]


def study_of(plan: Plan) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=Proposals(plan.drawn()))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 2) -> str:
    """The one line on stderr with which a request is answered."""
    try:
        ended = main(["sweep", *map(str, arguments)])
    except SystemExit as error:
        ended = error.code
    printed = capsys.readouterr()
    assert ended == code and printed.out == "" and printed.err.count("\n") == 1, printed
    assert printed.err.startswith("meannet: ")
    return printed.err.strip()


def test_a_sweep_never_asks_for_the_test_set(monkeypatch):
    asked, load = [], data.load
    monkeypatch.setattr(data, "load", lambda part, **more: asked.append(part.held_out) or load(part, **more))
    sweep(replace(TOY, samples=3, claims=(Claim(arm="dropout", value=3),)), "--trials", 3)
    assert len(asked) > 3 and all(asked)
    for number in range(3):
        trial = from_json(json.loads(Path(f"swept/trial-{number:04}/experiment.json").read_text()))
        assert trial.data.held_out and not trial.claims and not trial.samples and trial.seeds == (0, 1)
        assert [arm.name for arm in trial.arms] == ["dropout"]


@pytest.mark.parametrize("recipe", recipes.RECIPES)
def test_the_first_trial_is_the_recipes_own(recipe):
    full = recipes.get(recipe)
    if full.conv or full.patches or full.pretrain or full.data.held_out:
        with pytest.raises(ValueError, match=r"a sweep is for dense nets without pretraining|data\.held_out must be"):
            planned(full, ())
        return
    each = [arm.name for arm in full.arms if arm.name in full.omitting() and len(arm.hidden_rates) < 2]
    plan = planned(full, (), each[-1] if recipe == "claims.layers" else None)  # whose last ones have a rate a layer
    trial = plan.trial(plan.settings(0, {}))
    (arm,) = trial.arms
    assert arm in full.arms and arm.name == (full.claims[0].arm if full.claims else each[-1])
    assert trial.net.hidden == full.net.hidden[:1] and trial.optim == full.optim and trial.dropout == full.dropout
    drawn = proposed(study_of(plan), plan).params
    nearest = plan.settings(1, drawn)
    limits = (4, math.inf if full.limit(arm) > 60 else 60)
    assert nearest["net.hidden"] == full.net.hidden[0]
    assert nearest[plan.paths["optim.lr"]] == pytest.approx(full.lr(arm))
    assert nearest[plan.paths["optim.limit"]] == pytest.approx(min(max(full.limit(arm), limits[0]), limits[1]))


def test_settings_are_drawn_from_their_whole_ranges_and_not_beyond():
    plan = planned(recipes.get("reuters.subset"), ())
    study = study_of(plan)
    trials = [proposed(study, plan) for _ in range(300)]
    found = [plan.settings(trial.number, trial.params) for trial in trials[1:]]
    nets = {settings["net.hidden"] for settings in found}
    sizes = [(500, 250, 250), (1000, 500, 500), (2000, 1000, 1000), (4000, 2000, 2000)]
    assert nets == {each[:layers] for each in sizes for layers in (1, 2, 3)}
    for path, low, high in (("dropout.hidden", 0.2, 0.7), ("dropout.visible", 0, 0.4)):
        values = [settings[path] for settings in found]
        assert low <= min(values) < low + 0.02 and high - 0.02 < max(values) <= high
    rates = [math.log10(settings["optim.lr"]) for settings in found]
    assert 0 <= min(rates) < 0.05 and 1.95 < max(rates) <= 2 and abs(sum(rates) / len(rates) - 1) < 0.1
    limits = [settings["optim.limit"] for settings in found]
    finite = [limit for limit in limits if limit < math.inf]
    assert 4 <= min(finite) < 4.5 and 55 < max(finite) <= 60 and 0.1 < 1 - len(finite) / len(limits) < 0.35


def test_what_is_given_is_not_searched():
    flags = ["--set", "net.hidden=5", "--set", "dropout.visible=0.1", "--set", "optim.lr=0.5", "--set", "seeds=4,5,6"]
    document = sweep(TOY, "--trials", 3, *flags)
    assert document["seeds"] == [4, 5, 6]
    assert all(trial["settings"].keys() == {"dropout.hidden", "optim.limit"} for trial in document["trials"])
    for number in range(3):
        trial = from_json(json.loads(Path(f"swept/trial-{number:04}/experiment.json").read_text()))
        assert (trial.net.hidden, trial.dropout.visible, trial.optim.lr) == (((5,),), 0.1, 0.5)
    assert document["command"].startswith(shlex.join(["meannet", "run", "toy.json", *flags]))


def test_visible_units_are_not_searched_in_an_arm_that_omits_none():
    assert "dropout.visible" not in planned(recipes.get("mnist.features"), ()).settings(0, {})


def test_proposals_depend_on_number_and_outcomes_and_not_on_who_asks():
    plan = planned(recipes.get("digits"), ())

    def asked(restarts: bool, worse: int) -> list[dict]:
        study, found = study_of(plan), []
        for _ in range(14):
            if restarts:
                study.sampler = Proposals(plan.drawn())
            trial = proposed(study, plan)
            found.append(plan.settings(trial.number, trial.params))
            study.tell(trial, (trial.number * 7 + worse) % 11)
        return found

    first = asked(restarts=False, worse=0)
    assert asked(restarts=True, worse=0) == first
    assert len({str(settings) for settings in first}) == 14
    other = asked(restarts=False, worse=5)
    assert other[:10] == first[:10] and other[10:] != first[10:]


def test_a_line_a_trial_then_the_best_five_beside_the_recipes_own(capsys):
    document = sweep(TOY, "--trials", 7)
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert [line.split(":")[0] for line in lines[:7]] == [f"trial {number}" for number in range(7)]
    assert lines[0].endswith(f": {document['trials'][0]['mean']:.1f} (best so far)")
    means = [math.inf if trial["mean"] is None else trial["mean"] for trial in document["trials"]]
    marked = [number for number, line in enumerate(lines[:7]) if line.endswith("(best so far)")]
    assert marked == [number for number in range(7) if all(means[number] < mean for mean in means[:number])]
    assert document["best"]["number"] == means.index(min(means)) and told.err == ""
    table = [line for line in lines[7:] if line[0].isdigit()]
    order = sorted(range(7), key=lambda number: (means[number], number))
    shown = [int(line.split()[0].rstrip(",")) for line in table]
    assert shown == order[:5] + [0] * (0 not in order[:5]) and sum("the recipe's own" in line for line in table) == 1
    assert lines[-1] == f"to judge the best on the test set: {document['command']}"


def test_errors_are_those_of_the_runs_in_the_folder():
    document = sweep(TOY, "--trials", 2)
    assert document["n_held_out"] == 497 and document["arm"] == "dropout+input"
    for trial in document["trials"]:
        result = json.loads(Path(f"swept/trial-{trial['number']:04}/result.json").read_text())
        assert trial["errors"] == result["arms"][0]["errors"] and result["data"]["held_out"]
        assert trial["mean"] == sum(trial["errors"]) / 2 and (trial["state"], trial["why"]) == ("done", "")
    assert document.keys() >= {"recipe", "best", "command", "device", "seconds", "commit", "versions"}
    assert "optuna" in document["versions"]


def test_json_is_the_document_and_nothing_else(capsys):
    document = sweep(TOY, "--trials", 2, "--json")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == document and "trial 1: net.hidden=" in printed.err


def test_the_command_runs_and_has_the_best_settings(capsys):
    own = replace(TOY.arms[2], lr=1 / 3, limit=11.0, visible_rate=0.15)
    toy = replace(TOY, arms=(*TOY.arms[:2], own), net=replace(TOY.net, hidden=((8, 8), (7,))))
    document = sweep(toy, "--trials", 3, "--device", "cpu", "--set", "net.initial_sd=0.2")
    folder = Path(f"swept/trial-{document['best']['number']:04}")
    judged = from_json(json.loads((folder / "experiment.json").read_text()))
    arguments = shlex.split(document["command"])
    assert arguments[:3] == ["meannet", "run", "toy.json"]
    chosen = cli.chosen(cli.parser().parse_args(arguments[1:]))
    (swept,), ours, layers = judged.arms, chosen.arms[2], len(judged.net.hidden[0])
    assert (chosen.net, chosen.dropout, chosen.optim) == (judged.net, toy.dropout, toy.optim)
    assert chosen.rates(ours, layers) == judged.rates(swept, layers)
    assert (chosen.lr(ours), chosen.limit(ours)) == (judged.lr(swept), judged.limit(swept))
    assert chosen.arms[:2] == toy.arms[:2] and chosen.seeds == toy.seeds and not chosen.data.held_out
    assert main([*arguments[1:], "--out", "judged"]) in (0, 3)
    assert json.loads(Path("judged/result.json").read_text())["data"]["held_out"] is False


def test_settings_are_written_with_every_digit():
    plan = planned(replace(TOY, optim=replace(TOY.optim, lr=1 / 3, limit=math.inf)), ())
    settings = plan.settings(0, {})
    assert as_set(settings)[-2:] == ["optim.lr=0.3333333333333333", "optim.limit=inf"]
    assert plan.trial(settings) == plan.experiment


def test_a_signal_loses_nothing_and_going_on_ends_like_a_sweep_that_was_not_stopped(monkeypatch, capsys):
    unbroken = sweep(LONG, "--trials", 4)
    Path("swept").rename("unbroken")
    calls, attempt = [], tell.attempt

    def attempted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGTERM)
        return attempt(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(tell, "attempt", attempted)
        part = sweep(LONG, "--trials", 4, code=143)
    again = "meannet sweep toy.json --out swept --trials 4"
    assert capsys.readouterr().out.endswith(f"stopped; saved. Go on with: {again}\n")
    assert len(part["trials"]) == 1 and not Path("swept/trial-0001/result.json").exists()
    assert timeless(sweep(LONG, "--trials", 4)) == timeless(unbroken)
    assert sorted(path.name for path in Path("swept").iterdir()) == sorted(p.name for p in Path("unbroken").iterdir())


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGKILL", -9)])
def test_a_process_that_is_stopped_or_killed_can_go_on(tmp_path, name, code):
    written(replace(LONG, optim=LONG.optim.compressed(1000)), tmp_path / "toy.json")
    process = start("sweep", "toy.json", "--trials", 2, "--set", "net.hidden=6", cwd=tmp_path)
    wait_for(tmp_path / "runs/digits-sweep/trial-0000/state.safetensors", process)
    os.kill(process.pid, getattr(signal, name))
    process.join(60)
    assert process.exitcode == code
    if name == "SIGINT":
        said = (tmp_path / "stdout").read_text()
        assert said.endswith("--set net.hidden=6 --out runs/digits-sweep\n") and not (tmp_path / "stderr").read_text()
    out = tmp_path / "runs" / "digits-sweep"
    began = (out / "trial-0000/experiment.json").stat().st_ino
    assert finish("sweep", "toy.json", "--trials", 2, "--set", "net.hidden=6", "--out", out, cwd=tmp_path) == 0
    assert [trial["number"] for trial in json.loads((out / "sweep.json").read_text())["trials"]] == [0, 1]
    assert (out / "trial-0000/experiment.json").stat().st_ino == began


def test_a_finished_sweep_is_left_alone_and_more_trials_go_on_from_it(capsys):
    first = sweep(TOY, "--trials", 2)

    def files():
        every = (path for path in Path("swept").rglob("*") if path.is_file())
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in every}

    before = files()
    capsys.readouterr()
    assert sweep(TOY, "--trials", 2) == first and files() == before
    told = capsys.readouterr().out
    assert told.startswith("swept had already finished; nothing was run\n") and first["command"] in told
    sweep(TOY, "--trials", 1, "--json")
    assert json.loads(capsys.readouterr().out) == first and files() == before
    more = sweep(TOY, "--trials", 4)
    assert more["trials"][:2] == first["trials"] and len(more["trials"]) == 4


def test_what_a_kill_left_of_a_line_or_a_lock_is_cleared_away():
    first = sweep(TOY, "--trials", 1)
    with Path("swept/journal.log").open("a") as file:
        file.write('{"op_code": 5, "wor')
    Path("swept/journal.log.lock").touch()
    Path("swept/sweep.json").write_text("{")
    started = time.monotonic()
    assert sweep(TOY, "--trials", 2)["trials"][:1] == first["trials"] and time.monotonic() - started < 20
    assert all(json.loads(line) for line in Path("swept/journal.log").read_text().splitlines())


def test_two_processes_share_the_trials_of_one_study(tmp_path):
    written(LONG, tmp_path / "toy.json")
    asked = ["sweep", tmp_path / "toy.json", "--trials", 6, "--storage", f"sqlite:///{tmp_path / 'study.db'}"]
    both = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        both.append(start(*asked, "--out", "swept", cwd=tmp_path / name))
    for process in both:
        process.join(100)
    assert [process.exitcode for process in both] == [0, 0], (tmp_path / "one/stderr").read_text()
    ran = [{int(path.name[-4:]) for path in tmp_path.glob(f"{name}/swept/trial-*")} for name in ("one", "other")]
    assert not ran[0] & ran[1] and ran[0] | ran[1] in ({*range(6)}, {*range(7)})
    documents = [json.loads((tmp_path / name / "swept/sweep.json").read_text()) for name in ("one", "other")]
    longest = max(documents, key=lambda document: len(document["trials"]))
    assert all(len(document["trials"]) >= 6 for document in documents)
    assert [trial["number"] for trial in longest["trials"]] == list(range(len(longest["trials"])))
    assert longest["trials"][0]["settings"] == {
        "net.hidden": [8, 8],
        "dropout.hidden": 0.5,
        "dropout.visible": 0.2,
        "optim.lr": 1.0,
        "optim.limit": 15.0,
    }
    assert len({str(trial["settings"]) for trial in longest["trials"]}) == len(longest["trials"])
    assert finish(*asked[:3], 9, *asked[4:], "--out", "later", cwd=tmp_path) == 0
    joined = json.loads((tmp_path / "later/sweep.json").read_text())
    assert joined["trials"][: len(longest["trials"])] == longest["trials"] and len(joined["trials"]) == 9
    assert len(list(tmp_path.glob("later/trial-*"))) == 9 - len(longest["trials"])


def test_a_trial_that_diverges_is_named_and_the_sweep_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(plans, "table", lambda own, layers: (Draw("optim.lr", "optim.lr", 1e25, 1e30, "log"),))
    document = sweep(replace(TOY, optim=TOY.optim.compressed(4)), "--trials", 3)
    assert [trial["state"] for trial in document["trials"]] == ["done", "failed", "failed"]
    assert "seed 0, epoch 1, diverged" in document["trials"][1]["why"] and document["trials"][1]["mean"] is None
    assert document["trials"][1]["errors"] == [None, None] and document["best"]["number"] == 0
    told = capsys.readouterr().out
    assert "trial 1: optim.lr=" in told and "failed: seed 0, epoch 1, diverged" in told
    assert "\nfailed: 1, 2\nnothing that was tried does better than the recipe's own settings\n" in told


def test_a_sweep_without_a_net_that_trained_ends_with_3(capsys):
    document = sweep(replace(TOY, optim=replace(TOY.optim, lr=1e30)), "--trials", 1, code=3)
    assert document["best"] is None and document["command"] is None and document["trials"][0]["state"] == "failed"
    assert "test set" not in capsys.readouterr().out


def test_a_trial_that_does_not_fit_into_memory_is_a_failed_one_and_other_errors_end_the_sweep(monkeypatch):
    run = experiments.run

    def ran(experiment, folder, options):
        if Path(folder).name == "trial-0001":
            raise error
        return run(experiment, folder, options)

    monkeypatch.setattr(experiments, "run", ran)
    error = OutOfMemory("it does not fit")
    document = sweep(TOY, "--trials", 3)
    assert [trial["why"] for trial in document["trials"]] == ["", "it does not fit", ""]
    error = RuntimeError("out of memory: a peer says so")
    assert main(["sweep", "toy.json", "--trials", "3", "--out", "other"]) == 1


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("digits", "required: --trials"),
        ("digits --trials 0", "--trials must be 1 or more, not 0"),
        ("digits --trials some", "invalid int value: 'some'"),
        ("digitz --trials 2", "no recipe 'digitz'; did you mean digits?"),
        ("digits --trials 2 --trails 3", "meannet sweep takes no '--trails'; did you mean --trials?"),
        ("digits --trials 2 --seeds 0", "--seeds must be 1 or more, not 0"),
        ("digits --trials 2 --set net.hiden=3", "no setting 'net.hiden'; did you mean hidden?"),
        ("digits --trials 2 --set net.hidden=8;9", "net.hidden must be one architecture in a sweep, not 8;9"),
        ("digits --trials 2 --set data.held_out=true", "data.held_out must be false"),
        ("digits --trials 2 --device tpu", "--device must be one of auto, cpu, cuda, not 'tpu'"),
        (
            "digits --trials 2 --storage study.db",
            "must be the URL of a database, as sqlite:///sweep.db is, not study.db",
        ),
        ("digits --trials 2 --storage nosuch://me:secret@there", "not nosuch://…"),
        ("digits --trials 2 --storage redis://there", "not redis://…"),
        ("cifar10.quick --trials 2", "cifar10.quick has image nets"),
        ("imagenet.h_dropout --trials 2", "imagenet.h_dropout has image nets"),
        ("mnist.a2_dbn --trials 2", "mnist.a2_dbn has pretraining"),
        ("claims.rates --trials 2 --set optim.lr=1", "--set arms.rate 0.9, lr 3.lr=… instead"),
        ("digits --trials 2 --set data.cases=301", "data.cases must be at most 300"),
    ],
)
def test_a_wrong_request_gets_one_line_and_exit_2_and_leaves_nothing(capsys, arguments, answer):
    line = refused(capsys, *arguments.split())
    assert answer in line and "secret" not in line
    assert not list(Path.cwd().iterdir())


def test_a_sweep_that_has_nothing_to_search_is_refused(capsys):
    fixed = ["net.hidden=8", "dropout.hidden=0.5", "dropout.visible=0", "optim.lr=1", "optim.limit=15"]
    flags = [word for setting in fixed for word in ("--set", setting)]
    assert "nothing is left to search" in refused(capsys, "digits", "--trials", 2, *flags)


def test_a_rate_for_each_layer_is_refused(capsys):
    toy = replace(TOY, arms=(replace(TOY.arms[2], hidden_rates=(0.5, 0.2)),))
    assert "must be one rate in a sweep" in refused(capsys, written(toy, Path("toy.json")), "--trials", 2)


def test_a_database_that_cannot_be_opened_is_said_in_one_line_with_exit_1(capsys, monkeypatch):
    monkeypatch.setattr("meannet.sweep.study.TRIES", 1)
    Path("bad.db").write_bytes(b"not a database at all, " * 100)
    for url, answer in (("sqlite:////no/such/x.db", "unable to open"), ("sqlite:///bad.db", "file is not a database")):
        assert f"--storage: {answer}" in refused(capsys, "digits", "--trials", 2, "--storage", url, code=1)
    assert [path.name for path in Path.cwd().iterdir()] == ["bad.db"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@there:5432/studies", "postgresql://me:***@there:5432/studies"),
        ("postgresql://me:s'ecret@there/studies", "postgresql://me:***@there/studies"),
        ("postgresql://me@there/studies?password=secret&port=1", "postgresql://me@there/studies?password=***&port=1"),
        ("sqlite:///mine.db", "sqlite:///mine.db"),
    ],
)
def test_passwords_are_not_written_down(url, shown):
    command = without_password(shlex.join(["meannet", "sweep", "digits", "--storage", url, "--trials", "3"]), url)
    assert shlex.split(command) == ["meannet", "sweep", "digits", "--storage", shown, "--trials", "3"]


def test_the_arm_is_the_one_that_is_named_or_the_last_that_omits_units(capsys):
    assert swept_arm(recipes.get("claims.constant")).name == "constant, lr 10"
    assert swept_arm(recipes.get("mnist.a1")).name == "dropout+input"
    document = sweep(TOY, "--trials", 1, "--arm", "dropout")
    assert document["arm"] == "dropout" and "dropout.visible" not in document["best"]["settings"]
    shutil.rmtree("swept")
    Path("toy.json").unlink()
    capsys.readouterr()
    assert "no arm 'dropuot' in digits; did you mean dropout?" in refused(
        capsys, "digits", "--trials", 1, "--arm", "dropuot"
    )


def test_folders_of_others_are_refused(capsys):
    Path("file").touch()
    Path("full").mkdir()
    Path("full/thing").touch()
    assert "file is a file" in refused(capsys, "digits", "--trials", 2, "--out", "file")
    assert "full is there and not empty" in refused(capsys, "digits", "--trials", 2, "--out", "full")
    assert "Not a directory: file/new" in refused(capsys, "digits", "--trials", 2, "--out", "file/new", code=1)
    sweep(TOY, "--trials", 1)
    capsys.readouterr()
    for other in (["--set", "optim.lr=0.7"], ["--storage", "sqlite:///study.db"], ["--seeds", "1"]):
        line = refused(capsys, "toy.json", "--trials", 2, "--out", "swept", *other)
        assert "swept holds trials of another sweep" in line and not Path("swept/trial-0001").exists()
    handle = os.open("swept", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    line = refused(capsys, "toy.json", "--trials", 2, "--out", "swept", code=1)
    assert "another process is sweeping into swept" in line
    os.close(handle)


def test_without_optuna_one_line_says_what_to_install(capsys, monkeypatch):
    for name in ("meannet.sweep.tell", "meannet.sweep.study"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    line = refused(capsys, "digits", "--trials", 2, code=2)
    assert line == "meannet: a sweep needs optuna: pip install 'meannet[sweep]'"


def test_help_is_there_and_loads_neither_torch_nor_optuna(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["sweep", "--help"])
    assert "--storage URL" in capsys.readouterr().out
    program = "import sys; from meannet import cli; cli.parser(); print({'torch', 'optuna'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def wait_for(path: Path, process) -> None:
    started = time.monotonic()
    while not path.exists():
        process.join(0.02)
        assert process.exitcode is None and time.monotonic() - started < 60, path
