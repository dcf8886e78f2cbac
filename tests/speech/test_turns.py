"""Speakers who take turns within a run: exact resume, realignment by another run's nets, an example."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from spoken_toys import toy, write_corpus
from toys import every_update_asks, outcome  # noqa: F401

from meannet import cli, recipes
from meannet.config import Arm, Data, Net, Pretrain
from meannet.data import load
from meannet.experiment import Interrupted, Options, load_cases, resume, run
from meannet.lots import lots
from meannet.runlog import RunFolder
from meannet.speech import fbank, phones

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), recordings=2)


def pretrained(corpus, decode=False, **changes):
    """Three turns, of which one has two seeds, with two pretrained layers."""
    small = toy(corpus)
    return replace(
        small,
        data=replace(small.data, speech=replace(small.data.speech, folds=3, decode=decode)),
        net=Net(hidden=((9, 7),)),
        optim=replace(small.optim, epochs=3),
        pretrain=Pretrain(visible="gaussian", epochs=(2, 1), lr=(0.001, 0.01), batch=50, softmax_epochs=1, gibbs=1),
        seeds=(0, 1, 2, 4),
        **changes,
    )


def test_a_run_stopped_anywhere_in_any_turn_goes_on_to_the_same_bits(corpus, tmp_path):
    experiment = pretrained(corpus)
    asked = 0

    def count():
        nonlocal asked
        asked += 1
        return False

    run(experiment, tmp_path / "whole", Options(stop=count))
    whole = outcome(tmp_path / "whole")
    for share in (0.05, 0.3, 0.55, 0.9):
        where, left = tmp_path / f"stopped{share}", int(share * asked)

        def stop():
            nonlocal left
            left -= 1
            return left < 0

        with pytest.raises(Interrupted):
            run(experiment, where, Options(stop=stop, save_epochs=1))
        resume(where)
        found = outcome(where)
        assert found["metrics"] == whole["metrics"] and found["result"] == whole["result"]
        assert found["states"] == whole["states"]
    lines = [json.loads(line) for line in (tmp_path / "whole" / "pretrain.jsonl").read_text().splitlines()]
    assert len({(line["seed"], line["stage"], line["epoch"]) for line in lines}) == len(lines) == 4 * (2 + 1 + 1)
    by_stage = whole["result"]["pretraining"]
    assert [sorted(stage["seeds"]) for stage in by_stage] == [[0, 1, 2, 4]] * 3


def test_results_hold_every_seed_with_the_figures_of_its_own_turn(corpus, tmp_path):
    result = run(pretrained(corpus, decode=True), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for arm in result["arms"]:
        assert sorted(arm["seeds"]) == [0, 1, 2, 4] and arm["n_test"] == 100
        for seed, error in zip(arm["seeds"], arm["errors"], strict=True):
            (last,) = [r for r in lines if (r["arm"], r["seed"], r["epoch"]) == (arm["name"], seed, 3)]
            assert error == pytest.approx(100 * last["test_error"], abs=1e-3)
            assert {"test_loss", "test_state_error", "train_loss", "train_error"} <= last.keys()
    assert [found["n"] for found in result["comparisons"]] == [4] == [f["n"] for f in result["phone_comparisons"]]
    sizes = {fold["test"] for fold in result["data"]["folds"]}
    assert result["data"]["n_test"] == sum(fold["test"] for fold in result["data"]["folds"]) and len(sizes) > 1


def test_a_run_knows_its_recordings_by_what_was_read_not_by_how_features_were_rounded(tmp_path, monkeypatch):
    """Matrix products of other processors, or of other numbers of threads, differ in the last bits."""
    speech = replace(toy(write_corpus(tmp_path, recordings=1)).data.speech, folds=2)

    def digests():
        return [fold.digest for fold in load(Data(name="recordings", speech=speech), say=lambda line: None).folds]

    first = digests()
    energies = fbank._log_energies
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(fbank, "_log_energies", lambda *given: energies(*given) * (1 + 2**-20))
        assert digests() == first
    labels = tmp_path / "spk2" / "r0.phn"  # who tunes the decoder of the first turn, and is judged on in the second
    whole = labels.read_text()
    labels.write_text(whole.replace("h#", "pau", 1))
    assert all(now != before for now, before in zip(digests(), first, strict=True))
    silence, second, *rest = whole.splitlines()
    at, stop, phone = second.split()
    short = f"{at} {int(at) + 1} dx"  # has no frame of its own, but counts as said
    labels.write_text("\n".join([silence, short, f"{int(at) + 1} {stop} {phone}", *rest]))
    assert all(now != before for now, before in zip(digests(), first, strict=True))
    labels.write_text(whole)
    assert digests() == first


def test_realigned_states_stay_within_their_phones_and_suit_the_net_better(corpus, tmp_path):
    first = pretrained(corpus)
    run(first, tmp_path / "first")
    speech = replace(first.data.speech, aligned_by=str(tmp_path / "first"))
    second = replace(first, data=replace(first.data, speech=speech))
    said = []
    plain, again = load(first.data, say=said.append), load_cases(second, torch.device("cpu"), said.append)
    assert any("of training frames change state" in line for line in said)
    phone_of = torch.tensor(phones.PHONE_OF_STATE)
    for before, after in zip(plain.folds, again.folds, strict=True):
        old, new = before.train.targets, after.train.targets
        assert phone_of[old].equal(phone_of[new]) and not old.equal(new) and before.digest != after.digest
        assert before.test.targets.equal(after.test.targets)
        start = 0
        for utterance in before.spoken.train:  # in every phone states only go on
            for part in utterance.bounds:
                states = new[start + part.start : start + part.stop]
                assert (states.diff() >= 0).all()
            start += utterance.bounds[-1].stop
    result = run(second, tmp_path / "second")
    assert result["data"]["digest"] != json.loads((tmp_path / "first" / "result.json").read_text())["data"]["digest"]
    other = replace(second, data=replace(second.data, speech=replace(speech, frames=5)))
    with pytest.raises(ValueError, match=r"data\.speech\.aligned_by: .* has other settings of data\.speech"):
        run(other, tmp_path / "third")
    with pytest.raises(ValueError, match="has no net of arm dropout for turn 2"):
        fewer = replace(first, seeds=(0,))
        run(fewer, tmp_path / "fewer")
        folder = replace(speech, aligned_by=str(tmp_path / "fewer"))
        run(replace(second, data=replace(second.data, speech=folder)), tmp_path / "fourth")
    assert not (tmp_path / "third").exists() and not (tmp_path / "fourth").exists()


def test_nets_that_may_have_heard_those_who_are_judged_on_divide_no_phones(tmp_path):
    first = pretrained(write_corpus(tmp_path / "corpus", recordings=2))
    run(first, tmp_path / "first")
    speech = replace(first.data.speech, aligned_by=str(tmp_path / "first"))
    second = replace(first, data=replace(first.data, speech=speech))
    assert load_cases(second, torch.device("cpu"), print).folds
    write_corpus(tmp_path / "corpus" / "new", speakers=1, recordings=1)  # turns are divided otherwise now
    with pytest.raises(ValueError, match=r"data changed since .* its nets may have heard those who are judged on now"):
        load_cases(second, torch.device("cpu"), print)


def test_every_lot_has_seeds_and_files_of_its_own(corpus, tmp_path):
    experiment = pretrained(corpus)
    found = lots(experiment, RunFolder(tmp_path))
    assert [lot.experiment.seeds for lot in found] == [(0,), (1, 4), (2,)]
    assert len({lot.folder.state(lot.hidden, 1) for lot in found}) == 3
    plain = lots(recipes.get("mnist.a1"), RunFolder(tmp_path))
    assert all(lot.experiment == recipes.get("mnist.a1") and lot.folder.fold is None for lot in plain)


def test_phones_are_what_a_result_of_phone_claims_counts(corpus, tmp_path):
    claims = recipes.get("timit.core").claims
    experiment = replace(toy(corpus), claims=claims, seeds=(0,), optim=replace(toy(corpus).optim, epochs=2))
    result = run(experiment, tmp_path / "run")
    for arm in result["arms"]:
        assert arm["errors"] == arm["metrics"]["phone_error_rate"]
    assert result["claim"] == {"arm": "dropout", "value": 19.7, "unit": "% phone errors"}


def test_the_example_with_recordings_of_ones_own_is_short_and_runs(corpus, tmp_path, monkeypatch, capsys):
    path = PROJECT / "examples" / "own_speech.py"
    assert len(path.read_text().splitlines()) < 60
    monkeypatch.setenv("RECORDINGS", str(corpus))
    small = ["net.hidden=16", "optim.epochs=2", "pretrain.gibbs=1", "data.speech.folds=2", "seeds=0,1"]
    settings = [part for setting in small for part in ("--set", setting)]
    assert cli.main(["run", f"{path}:own_speech", *settings, "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "% frame errors on" in told and "phone errors, %" in told and "frames of q have no class" in told
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Cross-entropy of test cases ends at" in report and "Cross-entropy of training cases" in report
    assert cli.main(["eval", str(tmp_path / "run"), "--samples", "2"]) == 0
    recording = next(corpus.rglob("*.wav"))
    assert cli.main(["speech", "decode", str(tmp_path / "run"), str(recording)]) == 0
    assert "h#" in capsys.readouterr().out


def test_a_seed_alone_decides_a_net_whatever_turns_its_companions_have(corpus, tmp_path):
    experiment = pretrained(corpus, arms=(Arm(name="dropout", hidden=True),))
    both = run(experiment, tmp_path / "both")["arms"][0]
    alone = run(replace(experiment, seeds=(4,)), tmp_path / "alone")["arms"][0]
    assert alone["errors"] == [both["errors"][both["seeds"].index(4)]]
