"""A run on recordings of one's own, from files to phone errors, and `meannet speech decode` on what it leaves."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from spoken_toys import CHORDS, RATE, sung, toy, write_corpus, write_wav

from meannet import checkpoint, cli, recognition, report
from meannet import experiment as experiments
from meannet.data import load
from meannet.data.corpus import Recording, Utterance
from meannet.data.spoken import labelled
from meannet.fleets import make_fleet
from meannet.report import runs, speech
from meannet.speech import fbank, phones
from meannet.speech.fbank import SHIFT
from meannet.speech.textgrid import timed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("speech")
    experiments.run(toy(write_corpus(where / "corpus")), where / "run")
    return where


@pytest.fixture
def recording(tmp_path):
    """A new recording, what is said in it, and the second at which each phone begins."""
    samples, lines = sung(["h#", "aa", "s", "iy", "m", "h#"], np.random.default_rng(9))
    write_wav(tmp_path / "new.wav", samples)
    return tmp_path / "new.wav", [line.split()[2] for line in lines], [int(line.split()[0]) / RATE for line in lines]


def test_a_run_counts_phone_errors_of_every_net(folder):
    result = json.loads((folder / "run" / "result.json").read_text())
    for arm in result["arms"]:
        found = arm["metrics"]
        assert len(found["phone_error_rate"]) == 2 and max(found["phone_error_rate"]) < 25
        for rate, s, d, i, n in zip(
            *(found[k] for k in ("phone_error_rate", "substitutions", "deletions", "insertions", "phones")), strict=True
        ):
            assert rate == pytest.approx(100 * (s + d + i) / n, abs=1e-3)
    said = [line.split()[2] for path in (folder / "corpus").rglob("*.phn") for line in path.read_text().splitlines()]
    judged = result["arms"][0]["metrics"]["phones"]
    assert sum(judged) == sum(phone != "q" for phone in said)  # every speaker is judged on once, without q


def test_the_closing_lines_of_a_run_say_how_silence_is_scored(folder, capsys):
    assert cli.main(["run", "--resume", str(folder / "run")]) == 0  # a finished run tells its result again
    assert "phone errors are of 39 classes, silence counted as one of them, q deleted" in capsys.readouterr().out


def test_frame_figures_are_those_of_the_mean_network_frame_by_frame(folder):
    experiment = toy(folder / "corpus")
    dataset = load(experiment.data, say=lambda line: None).folds[0]
    fleet = make_fleet(experiment, (32,), dataset, "cpu")
    figures = recognition.frame_figures(fleet, dataset.test.inputs, dataset.test.targets)
    for net in range(len(fleet.seeds)):
        logs = recognition.log_probabilities(recognition.alone(fleet, net), dataset.test.inputs)
        said, taken_for = (
            [phones.PHONES[phones.PHONE_OF_STATE[state]] for state in states.tolist()]
            for states in (dataset.test.targets, logs.argmax(1))
        )
        pairs = [(phones.TO_39[a], phones.TO_39.get(b)) for a, b in zip(said, taken_for, strict=True) if a != "q"]
        assert figures.errors[net] == pytest.approx(sum(a != b for a, b in pairs) / len(pairs))
        assert len(pairs) < len(logs)  # frames of q count nowhere
        right = logs[torch.arange(len(logs)), dataset.test.targets]
        assert figures.cross_entropy[net] == pytest.approx(-right.mean().item(), rel=1e-5)
        assert figures.state_errors[net] == pytest.approx(
            (logs.argmax(1) != dataset.test.targets).float().mean().item()
        )


def test_decode_finds_phones_and_their_times(folder, recording, tmp_path, capsys):
    path, said, begins = recording
    out = tmp_path / "new.TextGrid"
    assert (
        cli.main(["speech", "decode", str(folder / "run"), str(path), "--json", "-o", str(out), "--device", "cpu"]) == 0
    )
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [one["phone"] for one in found["phones"]] == said
    assert np.abs(np.subtract([one["start"] for one in found["phones"]], begins)).max() < 2 * SHIFT
    assert found["phones"][-1]["stop"] == found["seconds"] and "arm dropout, seed 0" in printed.err
    grid = out.read_text()
    assert 'Object class = "TextGrid"' in grid and f"intervals: size = {len(said)}" in grid
    assert [line.split('"')[1] for line in grid.splitlines() if "text =" in line] == said


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050, 44_100])
def test_times_are_those_of_the_labels_at_any_rate_however_long_the_recording(rate):
    """A shift of 10 ms is no whole number of samples at 11,025 and 22,050 a second."""
    samples, begins = 600 * rate, [0, 100 * rate, 590 * rate]
    heard = Recording(Utterance("x", "", "", "", Path(), Path()), np.empty(0), rate, [1, 2, 3], begins)
    bounds = labelled(heard, fbank.frame_count(samples, rate)).bounds
    starts = [one.start for one in timed(bounds, samples, rate)]
    assert np.abs(np.subtract(starts, [0, 100, 590])).max() <= SHIFT / 2


def test_decode_prints_a_table_and_takes_the_net_that_is_asked_for(folder, recording, capsys):
    arguments = ["speech", "decode", str(folder / "run"), str(recording[0]), "--arm", "backprop", "--seed", "1"]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()[1:]] == recording[1]
    assert "arm backprop, seed 1" in printed.err


def refused(capsys, *arguments, code=2):
    assert cli.main(["speech", "decode", *map(str, arguments)]) == code
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


def test_what_cannot_be_decoded_is_refused_in_one_line(folder, recording, tmp_path, capsys):
    run, path = folder / "run", recording[0]
    write_wav(tmp_path / "slow.wav", np.zeros(8000), rate=8000)
    assert "8,000 samples a second, and the run learned from 16,000" in refused(capsys, run, tmp_path / "slow.wav")
    write_wav(tmp_path / "two.wav", np.zeros(8000), channels=2)
    assert "it has 2 channels, not one" in refused(capsys, run, tmp_path / "two.wav")
    (tmp_path / "cut.wav").write_bytes(path.read_bytes()[:-100])
    assert "data chunk is cut short" in refused(capsys, run, tmp_path / "cut.wav")
    (tmp_path / "text.wav").write_text("words")
    assert "neither a SPHERE nor a RIFF file" in refused(capsys, run, tmp_path / "text.wav")
    write_wav(tmp_path / "short.wav", np.zeros(600))
    assert "give a longer recording" in refused(capsys, run, tmp_path / "short.wav")
    assert "No such file" in refused(capsys, run, tmp_path / "none.wav")
    assert "must end in .TextGrid" in refused(capsys, run, path, "-o", tmp_path / "new.txt")
    (tmp_path / "there.TextGrid").write_text("mine")
    assert "is there already" in refused(capsys, run, path, "-o", tmp_path / "there.TextGrid")
    assert (tmp_path / "there.TextGrid").read_text() == "mine"
    assert "has a decoder of its own; name one seed" in refused(capsys, run, path, "--seed", "all")
    assert "there is no run folder" in refused(capsys, tmp_path / "no", path)
    assert cli.main(["predict", str(run), str(path)]) == 2
    assert "is a recording; `meannet speech decode` takes these" in capsys.readouterr().err


def copied(run, where):
    where.mkdir()
    for file in run.iterdir():
        (where / file.name).write_bytes(file.read_bytes())
    return where


def test_a_recogniser_that_is_lost_or_damaged_is_made_anew_as_the_message_says(folder, recording, tmp_path, capsys):
    run = copied(folder / "run", tmp_path / "run")
    own = run / "recogniser.turn0.safetensors"
    whole = own.read_bytes()
    remedy = f"move {run / 'result.json'} elsewhere, and `meannet run --resume {run}` makes it anew"
    own.write_bytes(whole[:-9])
    assert remedy in refused(capsys, run, recording[0], code=1)
    own.write_bytes((run / "recogniser.turn1.safetensors").read_bytes())
    assert "holds no recogniser of arm dropout, seed 0" in refused(capsys, run, recording[0], code=1)
    own.unlink()
    told = refused(capsys, run, recording[0], code=1)
    assert "recogniser.turn0.safetensors is missing" in told and remedy in told
    (run / "result.json").unlink()
    assert cli.main(["run", "--resume", str(run)]) == 0 and own.read_bytes() == whole
    assert cli.main(["speech", "decode", str(run), str(recording[0])]) == 0


def of_every_net(name, value):
    return lambda tensors, facts: [net.__setitem__(name, value) for net in facts["nets"]]


@pytest.mark.parametrize(
    ("change", "drawn"),
    [
        (lambda tensors, facts: tensors.update(mean=torch.zeros(3)), True),
        (lambda tensors, facts: tensors.update(prior=torch.zeros(5)), True),
        (lambda tensors, facts: tensors.update(stay=torch.zeros(185)), True),  # never left
        (lambda tensors, facts: tensors.update(follow=torch.full((61, 61), float("nan"))), True),
        (lambda tensors, facts: facts.update(rate=None), True),
        (of_every_net("scale", "x"), True),
        (of_every_net("scale", float("nan")), True),
        (lambda tensors, facts: facts.update(nets=5), False),
        (lambda tensors, facts: facts.update(nets=[1, 2]), False),
    ],
)
def test_a_recogniser_whose_numbers_do_not_fit_is_refused_in_one_line(
    folder, recording, tmp_path, capsys, change, drawn
):
    run = copied(folder / "run", tmp_path / "run")
    spoil(run, change)
    assert "holds no recogniser of arm dropout, seed 0" in refused(capsys, run, recording[0], code=1)
    assert cli.main(["report", str(run), "-o", str(tmp_path / "page.html")]) == (0 if drawn else 2)


def spoil(run, change):
    path = run / "recogniser.turn0.safetensors"
    tensors, facts = checkpoint.read(path)
    change(tensors, facts)
    checkpoint.save(path, tensors, facts, keep_previous=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, facts: tensors.update(confusions=torch.zeros(2)),
        lambda tensors, facts: tensors.update(frames=torch.zeros(0, 23)),
        lambda tensors, facts: facts.update(classes=["aa"]),
        lambda tensors, facts: facts.update(example=3),
        lambda tensors, facts: facts["example"].update(said=[]),
        lambda tensors, facts: facts["example"]["recognised"].pop(),
        lambda tensors, facts: facts["example"]["said"][0].update(start="soon"),
    ],
)
def test_a_report_on_figures_that_cannot_be_drawn_says_which_file_is_at_fault(folder, tmp_path, capsys, change):
    run = copied(folder / "run", tmp_path / "run")
    spoil(run, change)
    assert cli.main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 2
    told = capsys.readouterr().err
    assert "recogniser.turn0.safetensors cannot be read" in told and told.count("\n") == 1


def test_a_run_in_which_no_phones_were_recognised_is_refused(folder, recording, tmp_path, capsys):
    run = copied(folder / "run", tmp_path / "run")
    document = json.loads((run / "experiment.json").read_text())
    document["data"]["speech"]["decode"] = False
    (run / "experiment.json").write_text(json.dumps(document))
    assert "no phones were recognised in" in refused(capsys, run, recording[0])
    document["data"] = {"name": "digits"}
    (run / "experiment.json").write_text(json.dumps(document))
    assert "is a run on digits, not on speech" in refused(capsys, run, recording[0])


def test_the_report_has_errors_confusions_and_an_utterance(folder, tmp_path):
    report.write([folder / "run"], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    found = speech.gather(runs.read(folder / "run"), "h")
    assert "silence counted as one of them" in page and found.confusions.finding in page
    result = json.loads((folder / "run" / "result.json").read_text())
    rates = result["arms"][1]["metrics"]["phone_error_rate"]
    assert found.rows[1].figures[0] == f"{np.mean(rates):.1f} ± {np.std(rates, ddof=1):.1f}"
    assert all(f">{phone}<" in page for phone in CHORDS if phone != "q")
    assert set(" ".join(speech.GROUPS.values()).split()) == set(phones.CLASSES)
