"""Recordings and labels: SPHERE and RIFF files put together byte by byte, layouts, sets by speakers, turns."""

import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from meannet import cli, config, data
from meannet.config import Data, Speech
from meannet.data import DataError, corpus, timit, timit_sample
from meannet.data.spoken import by_turns, framed, labelled
from meannet.speech import audio, phones

SAMPLES = np.arange(-700, 900, dtype=np.int16) * 7


def sphere(samples=SAMPLES, order="<", **changes):
    fields = {
        "channel_count": "-i 1",
        "sample_count": f"-i {len(samples)}",
        "sample_rate": "-i 16000",
        "sample_n_bytes": "-i 2",
        "sample_byte_format": "-s2 01" if order == "<" else "-s2 10",
    } | changes
    lines = "".join(f"{name} {value}\n" for name, value in fields.items() if value)
    return f"NIST_1A\n   1024\n{lines}end_head\n".ljust(1024).encode() + samples.astype(f"{order}i2").tobytes()


def riff(samples=SAMPLES, *, kind=1, channels=1, bits=16, before=b"", rate=16_000):
    body = samples.astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", kind, channels, rate, 2 * rate, 2, bits)
    chunks = before + b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


GOOD = {
    "sphere": sphere(),
    "sphere, other byte order": sphere(order=">"),
    "riff": riff(),
    "riff with a chunk of odd length before": riff(before=b"LIST" + struct.pack("<I", 3) + b"abc\0"),
}
BAD = {
    "nothing": (b"", "neither a SPHERE nor a RIFF file"),
    "a header alone": (sphere()[:600], "cut short"),
    "no length of the header": (b"NIST_1A\nabc\n" + b" " * 2000, "does not say how long"),
    "a sample too few": (sphere()[:-2], "says 1600 samples and holds 1599"),
    "half a sample": (sphere()[:-1], "holds 1599.5"),
    "more than it says": (sphere() + b"ab", "holds 1601"),
    "packed": (sphere(sample_coding="-s26 pcm,embedded-shorten-v2.00"), "coded as pcm,embedded-shorten"),
    "two channels": (sphere(channel_count="-i 2"), "2 channels"),
    "eight bits": (sphere(sample_n_bytes="-i 1"), "8 bits"),
    "no count": (sphere(sample_count=""), "sample_count is missing"),
    "a word for a rate": (sphere(sample_rate="-s3 abc"), "sample_rate is abc"),
    "riff without wave": (b"RIFF\0\0\0\0AVI " + b"\0" * 40, "no WAVE"),
    "riff cut short": (riff()[:-10], "data chunk is cut short"),
    "riff of floats": (riff(kind=3), "format 3, not PCM"),
    "riff in stereo": (riff(channels=2), "2 channels"),
    "riff of bytes": (riff(bits=8), "8 bits"),
    "riff without samples": (riff(SAMPLES[:0]), "empty"),
    "riff without data": (riff()[:36], "no data chunk"),
    "riff of another planet": (riff(rate=3), "3 samples a second"),
    "riff without a rate": (riff(rate=0), ": 0 samples a second"),
}


@pytest.mark.parametrize("name", GOOD)
def test_samples_are_those_that_were_written(name, tmp_path):
    (tmp_path / "a.wav").write_bytes(GOOD[name])
    found = audio.read(tmp_path / "a.wav")
    assert found.rate == 16_000 and found.samples.dtype == np.int16 and (found.samples == SAMPLES).all()


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_recording_is_refused_in_one_line(name, tmp_path):
    content, message = BAD[name]
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(audio.AudioError, match=message) as error:
        audio.read(tmp_path / "a.wav")
    assert str(error.value).startswith(str(tmp_path / "a.wav")) and "\n" not in str(error.value)


@pytest.mark.parametrize("cut", range(0, 1100, 97))
def test_a_recording_cut_anywhere_is_refused(cut, tmp_path):
    for content in (GOOD["sphere"], GOOD["riff"]):
        (tmp_path / "a.wav").write_bytes(content[: cut - len(content)])
        with pytest.raises(audio.AudioError):
            audio.read(tmp_path / "a.wav")


LABELS = "0 600 h#\n600 1000 sh\n1000 1590 iy\n"
WRONG = {
    "0 600 h#\n600 xyz sh\n": "line 2: '600 xyz sh' is not",
    "0 600 h#\n600 600 sh\n": "line 2: the phone begins at 600 and ends at 600",
    "0 600 h#\n3000 3500 sh\n": "line 2: the phone begins at 3000, where 600",
    "0 600 h#\n600 900 sh\n500 1600 iy\n": "line 3: the phone begins at 500",
    "0 600 h#\n600 5000 sh\n": "line 2: the phone ends at 5000, and the recording has 1600",
    "0 600 h#\n600 1600 shh\n": "line 2: 'shh' is none of TIMIT's 61",
    "": "holds no phones",
}


@pytest.mark.parametrize("text", WRONG)
def test_labels_that_do_not_fit_the_recording_are_refused_with_their_line(text, tmp_path):
    (tmp_path / "a.phn").write_text(text)
    with pytest.raises(DataError, match=WRONG[text]) as error:
        corpus.labels(tmp_path / "a.phn", 1600, 16_000)
    assert "\n" not in str(error.value)


def test_labels_that_leave_seconds_of_a_recording_are_refused(tmp_path):
    (tmp_path / "a.phn").write_text(LABELS)
    numbers, begins = corpus.labels(tmp_path / "a.phn", 1600, 16_000)
    assert [phones.PHONES[n] for n in numbers] == ["h#", "sh", "iy"] and begins == [0, 600, 1000]
    with pytest.raises(DataError, match="ends at sample 1590, and the recording has 160000"):
        corpus.labels(tmp_path / "a.phn", 160_000, 16_000)


def test_a_phone_has_the_frames_whose_middle_lies_in_it(tmp_path):
    """Frame k is of the samples from 160 k on, 400 of them."""
    lines = [(0, 640, "h#"), (640, 700, "b"), (700, 710, "q"), (710, 2000, "iy")]
    write(tmp_path / "s", "a", np.zeros(2200), lines)
    one = corpus.read_one(*corpus.find(tmp_path))
    found = labelled(one, 12)
    by_frame = [
        next(symbol for begin, end, symbol in lines if begin <= 160 * k + 200 < (end if end < 2000 else 9999))
        for k in range(12)
    ]
    assert [phones.PHONES[part.phone] for part in found.bounds for _ in range(part.start, part.stop)] == by_frame
    assert [phones.PHONES[n] for n in found.phones] == ["h#", "b", "q", "iy"]  # two of which have no frame
    assert found.bounds[0].start == 0 and found.bounds[-1].stop == 12


def write(folder: Path, name: str, samples, lines, *, suffix=".wav", labels=".phn", kind=riff):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}{suffix}").write_bytes(kind(np.asarray(samples).astype(np.int16)))
    (folder / f"{name}{labels}").write_text("".join(f"{b} {e} {s}\n" for b, e, s in lines))


def test_layouts_are_told_apart_by_their_folders(tmp_path):
    lines = [(0, 1600, "h#")]
    write(
        tmp_path / "TIMIT" / "TRAIN" / "DR1" / "FCJF0", "SA1", SAMPLES, lines, suffix=".WAV", labels=".PHN", kind=sphere
    )
    write(tmp_path / "TIMIT" / "TEST" / "DR2" / "MABC0", "SX7", SAMPLES, lines, suffix=".WAV.wav", labels=".PHN")
    (tmp_path / "TIMIT" / "TEST" / "DR2" / "MABC0" / "SX7.WAV").write_bytes(b"what was converted")
    write(tmp_path / "dr3-fxyz0", "si1", SAMPLES, lines)
    write(tmp_path, "anna_first", SAMPLES, lines)
    found = {one.name: one for one in corpus.find(tmp_path)}
    facts = {name.rpartition("/")[2]: (one.speaker, one.part, one.shared) for name, one in found.items()}
    assert facts == {
        "sa1": ("fcjf0", "train", True),
        "sx7": ("mabc0", "test", False),
        "si1": ("fxyz0", "", False),
        "anna_first": ("anna", "", False),
    }
    assert all(len(one.samples) == 1600 for one in corpus.read(list(found.values())))
    (tmp_path / "dr3-fxyz0" / "si1.wav").unlink()
    with pytest.raises(DataError, match=r"there is no si1\.wav beside it"):
        corpus.find(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \.phn file"):
        corpus.find(tmp_path / "empty")


def test_a_speaker_is_the_first_folder_that_does_not_divide_timit(tmp_path):
    speakers = {
        "anna/monday/a": "anna",
        "anna/tuesday/b": "anna",
        "TIMIT/TRAIN/DR1/FCJF0/c": "fcjf0",
        "DR1/MABC0/d": "mabc0",
        "train/bob/late/e": "bob",
        "carl/test/f": "carl",
        "test/dora_1": "dora",
    }
    for name in speakers:
        write((tmp_path / name).parent, Path(name).name, SAMPLES, [(0, 1600, "h#")])
    assert {one.name: one.speaker for one in corpus.find(tmp_path)} == {n.lower(): s for n, s in speakers.items()}


def test_linked_folders_are_followed_and_none_is_taken_twice(tmp_path):
    write(tmp_path / "far" / "anna", "x", SAMPLES, [(0, 1600, "h#")])
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "anna").symlink_to(tmp_path / "far" / "anna")
    (tmp_path / "near" / "bob").symlink_to(tmp_path / "far" / "anna")
    (tmp_path / "far" / "anna" / "round").symlink_to(tmp_path / "near")
    assert [one.name for one in corpus.find(tmp_path / "near")] == ["anna/x"]


def test_a_link_to_no_file_is_not_passed_over(tmp_path):
    write(tmp_path / "a", "x", SAMPLES, [(0, 1600, "h#")])
    for name in ("x.wav", "x.phn"):
        (tmp_path / "a" / f"gone_{name}").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"gone_x\.wav: No such file"):
        corpus.read(corpus.find(tmp_path))


def test_recordings_of_ones_own_that_are_left_out_are_counted(tmp_path):
    for speaker in "abcd":
        for name in ("one", "two", "sa1"):
            write(tmp_path / speaker, name, np.zeros(1600), [(0, 1600, "h#")])
    (tmp_path / "a" / "two.phn").unlink()
    for name in ("._one.wav", "._one.phn"):  # as macOS leaves them on other disks
        (tmp_path / "a" / name).write_bytes(b"\0\5\26\7")
    said = []
    settings = Speech(folder=str(tmp_path), folds=2, dev=1, decode=False)
    data.load(Data(name="recordings", speech=settings), say=said.append)
    assert said[0] == "1 recordings have no .phn file beside them and are left out"
    assert said[1].startswith("4 recordings named sa1 or sa2 are left out") and "7 recordings of 4" in said[2]
    said.clear()
    data.load(Data(name="recordings", speech=replace(settings, sa=True)), say=said.append)
    assert not any("sa1" in line for line in said) and "11 recordings of 4" in said[1]


@pytest.mark.parametrize("text", ["[" + "0, " * 100_000 + "]", f"0 1600 {'h#' * 100_000}", "\0" * 300_000])
def test_what_is_no_file_of_labels_is_named_in_a_short_line(text, tmp_path):
    (tmp_path / "x.phn").write_text(text)
    with pytest.raises(DataError, match=r"x\.phn, line 1: .*…' is not a first sample") as error:
        corpus.labels(tmp_path / "x.phn", 1600, 16_000)
    assert len(str(error.value)) < 1000


def test_speakers_who_cannot_be_scored_are_refused_before_anything_is_trained(tmp_path):
    for speaker in "abcd":
        write(tmp_path / speaker, "x", np.zeros(1600), [(0, 1600, "q" if speaker == "b" else "h#")])
    with pytest.raises(DataError, match=r"b.x\.phn: those to be judged on say q alone, which is not scored"):
        data.load(Data(name="recordings", speech=Speech(folder=str(tmp_path), folds=3, dev=1)), say=print)


def test_two_recordings_that_differ_in_case_alone_are_refused(tmp_path):
    """Their frames are kept by name: the one would be taken for the other."""
    write(tmp_path / "Anna", "x", SAMPLES, [(0, 1600, "h#")])
    write(tmp_path / "anna", "X", -SAMPLES, [(0, 1600, "s")])
    if len(list(tmp_path.iterdir())) < 2:
        pytest.skip("this file system does not tell them apart")
    with pytest.raises(DataError, match="have one name, since case does not matter; rename one"):
        corpus.find(tmp_path)


def test_recordings_of_two_rates_are_refused(tmp_path):
    write(tmp_path / "a", "x", SAMPLES, [(0, 1600, "h#")])
    write(tmp_path / "b", "y", SAMPLES, [(0, 1600, "h#")], kind=lambda s: riff(s, rate=8000))
    with pytest.raises(DataError, match="8000 samples a second"):
        corpus.read(corpus.find(tmp_path))


def test_a_recording_too_short_for_a_phone_is_refused_before_anything_is_trained(tmp_path):
    write(tmp_path / "a", "x", np.zeros(719), [(0, 719, "h#")])
    with pytest.raises(DataError, match=r"x\.wav has 2 frames of 25 ms, and a phone has 3 or more"):
        corpus.read(corpus.find(tmp_path))
    write(tmp_path / "a", "x", np.zeros(720), [(0, 720, "h#")])
    assert len(framed(corpus.read(corpus.find(tmp_path)), Speech()).features["a/x"]) == 3


def test_a_folder_that_is_not_there_is_named_with_where_it_was_looked_for(tmp_path, monkeypatch):
    """A run that is resumed elsewhere looks for the same words."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"there is no folder mine in {tmp_path}$"):
        corpus.find(Path("mine"))


def test_a_check_of_ones_own_recordings_names_everything_that_is_wrong(tmp_path, capsys):
    write(tmp_path / "a", "good", SAMPLES, [(0, 1600, "h#")])
    assert cli.main(["data", "check", "recordings", str(tmp_path)]) == 0
    assert "1 recordings of 1 speakers" in capsys.readouterr().out
    write(tmp_path / "a", "slow", SAMPLES, [(0, 1600, "h#")], kind=lambda s: riff(s, rate=8000))
    write(tmp_path / "b", "late", SAMPLES, [(900, 1600, "iy")])
    write(tmp_path / "b", "short", SAMPLES[:500], [(0, 500, "h#")])
    write(tmp_path / "c", "marked", SAMPLES, [(0, 1600, "h#")])
    (tmp_path / "c" / "marked.phn").write_bytes(b"\xef\xbb\xbf0 1600 h#\n")
    assert cli.main(["data", "check", "recordings", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert told.count("BAD") == 4 == told.count("\n")
    for wrong in (
        "convert them to one rate",
        "late.phn, line 1: the first phone begins at 900, not at 0; silence before it is labelled h#",
        "short.wav has 1 frames of 25 ms",
        "marked.phn, line 1: not plain ASCII",
    ):
        assert wrong in told


def whole():
    """Names of a whole corpus: no file is there."""
    train = [f"{'fm'[k % 2]}{k:03d}x" for k in range(462)]
    others = [f"m{k:03d}y" for k in range(168 - 74)]

    def said(speaker, part):
        names = ["sa1", "sa2", *(f"si{k}" for k in range(3)), *(f"sx{k}" for k in range(5))]
        return [corpus.Utterance(f"{part}/{speaker}/{n}", speaker, n, part, Path(), Path()) for n in names]

    found = [one for speaker in train for one in said(speaker, "train")]
    return found + [one for s in (*timit.CORE, *timit.DEVELOPMENT, *others) for one in said(s, "test")]


def test_the_standard_sets_have_their_sizes_and_share_no_speaker():
    found = whole()
    assert len(found) == 6300 and timit.incomplete(found) == ""
    (sets,) = timit.standard(found, Speech(), held_out=False)
    assert [len(part) for part in sets] == [3696, 400, 192]
    assert [len(corpus.speakers(part)) for part in sets] == [462, 50, 24]
    speakers = [set(corpus.speakers(part)) for part in sets]
    assert not (speakers[0] & speakers[1] or speakers[0] & speakers[2] or speakers[1] & speakers[2])
    assert not any(one.shared for part in sets for one in part)
    (validation,) = timit.standard(found, Speech(judged="dev"), held_out=False)
    assert validation.test == sets.dev
    (choosing,) = timit.standard(found, Speech(), held_out=True)
    assert len(corpus.speakers(choosing.test)) == 46 and not choosing.dev
    assert all(one.part == "train" for part in choosing for one in part)
    assert not set(corpus.speakers(choosing.train)) & set(corpus.speakers(choosing.test))


def test_what_is_missing_of_the_corpus_is_named():
    found = whole()
    assert "461 of 462 training speakers" in timit.incomplete([one for one in found if one.speaker != "f000x"])
    assert "23 of 24 core test speakers" in timit.incomplete([one for one in found if one.speaker != "mdab0"])
    assert "399 of 400 development" in timit.incomplete([one for one in found if one.name != "test/faks0/sx1"])


def test_every_speaker_is_judged_on_once_and_never_learned_from_in_that_turn():
    found = [
        corpus.Utterance(f"{speaker}/{name}", f"s{speaker:02d}", name, "", Path(), Path())
        for speaker in range(16)
        for name in ("sa1", "sx1", "sx2")
    ]
    turns = by_turns(found, Speech(folds=5, dev=2), held_out=False)
    judged = [speaker for turn in turns for speaker in corpus.speakers(turn.test)]
    assert sorted(judged) == sorted({one.speaker for one in found})
    for turn in turns:
        parts = [set(corpus.speakers(part)) for part in turn]
        assert len(parts[1]) == 2 and sum(map(len, parts)) == 16 == len(set.union(*parts))
        assert not any(one.shared for part in turn for one in part)
    for turn, held in zip(turns, by_turns(found, Speech(folds=5, dev=2), held_out=True), strict=True):
        assert held.train == turn.train and held.test == turn.dev and not held.dev
    alone = by_turns(found, Speech(folds=5, dev=1, apart="recordings", sa=True), held_out=False)
    assert sum(len(turn.test) for turn in alone) == len(found)
    with pytest.raises(
        DataError, match=r"16 speakers are too few for 15 turns .* lower data\.speech\.folds or data\.speech\.dev"
    ):
        by_turns(found, Speech(folds=15, dev=2), held_out=False)
    with pytest.raises(ValueError, match=r"data\.speech\.folds must be 2 or more"):
        by_turns(found, Speech(), held_out=False)


def test_the_sample_is_read_normalised_and_divided(real_data):
    if not (real_data / "timit-sample").is_dir():
        pytest.skip("no timit-sample among the real data")
    assert [one.ok for one in timit_sample.check()] == [True]
    said = []
    found = data.load(Data(name="timit-sample", speech=Speech(folds=8, frames=15, decode=False)), say=said.append)
    assert len(found.folds) == 8 and "16 speakers" in said[0] and "625 frames of q" in said[1]
    fold = found.folds[3]
    assert fold.train.inputs.shape[1] == 15 * 120 and len(fold.classes) == 185
    assert fold.train.inputs.shape[0] == len(fold.train.targets) and len(fold.test.inputs) == len(fold.test.targets)
    middle = fold.train.inputs[torch.arange(len(fold.train.inputs))][:, 7 * 120 : 8 * 120].double()
    assert middle.mean(0).abs().max() < 1e-5 and (middle.std(0) - 1).abs().max() < 1e-4
    assert fold.test.inputs.table.mean(0).abs().max() > 0.05  # of others than those that are learned from
    assert (
        found.digest
        != data.load(Data(name="timit-sample", speech=Speech(folds=4, decode=False)), say=said.append).digest
    )


def test_phones_of_the_sample_that_are_shorter_than_a_path_are_as_many_as_the_card_says(real_data):
    if not (real_data / "timit-sample").is_dir():
        pytest.skip("no timit-sample among the real data")
    every = [corpus.read_one(one) for one in corpus.find(real_data / "timit-sample")]
    rows = [labelled(one, 1 + (len(one.samples) - 400) // 160) for one in every]
    said, heard = sum(len(row.phones) for row in rows), [part for row in rows for part in row.bounds]
    short = sum(part.stop - part.start < (5 if phones.PHONES[part.phone] == "h#" else 3) for part in heard)
    card = (Path(__file__).parents[2] / "docs" / "cards" / "speech.md").read_text()
    assert f"{short} of {said:,} phones; one more" in " ".join(card.split()) and said - len(heard) == 1


def test_the_sample_is_unpacked_whole_or_not_at_all(real_data, tmp_path, monkeypatch):
    if not (real_data / "timit-sample").is_dir():
        pytest.skip("no timit-sample among the real data")
    where = tmp_path / "timit-sample"
    where.mkdir()
    for name, change in (("bad.zip", b"x"), ("good.zip", b"")):
        with zipfile.ZipFile(where / name, "w") as archive:
            for kind in timit_sample.KINDS:
                for file in (real_data / "timit-sample").rglob(f"*{kind}"):
                    archive.writestr(f"timit/{file.parent.name}/{file.name}", file.read_bytes() + change)
    for name in ("bad.zip", "README"):
        (where / "README").write_text("no archive")
        with pytest.raises(DataError, match=r"not the sample known here|cannot be unpacked"):
            timit_sample._unpack(where / name)
        assert not any(path.is_dir() for path in where.iterdir())
    assert timit_sample._unpack(where / "good.zip") == 160
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    assert [one.ok for one in timit_sample.check()] == [True]
    (where / "dr1-fvmh0" / "sa1.phn").unlink()
    (where / "dr1-fvmh0" / "sa1.wav").unlink()
    with pytest.raises(DataError, match="not the sample known here; `meannet data fetch timit-sample --force`"):
        data.load(Data(name="timit-sample", speech=Speech(folds=8)), say=print)


def test_settings_of_speech_that_make_no_sense_are_refused():
    from meannet import recipes

    sample = recipes.get("timit.sample")
    for setting, message in {
        "data.speech.frames=14": "odd",
        "data.speech.folds=1": "2 or more, or 0",
        "data.cases=10": "none where cases are frames",
        "data.speech.judged=all": "one of core, dev",
        "data.speech.judged=dev": "left as it is where data.name is timit-sample; it is for timit, not dev",
        "data.speech.folder=mine": "left as it is where data.name is timit-sample; it is for recordings, not mine",
    }.items():
        with pytest.raises(ValueError, match=message):
            config.override(sample, [setting])
    with pytest.raises(ValueError, match=r"data\.speech is for data sets of speech; digits is none"):
        data.load(Data(name="digits", speech=Speech()), say=print)
    with pytest.raises(ValueError, match=r"data\.speech\.decode must be false where development speakers"):
        data.load(Data(name="timit", speech=Speech(judged="dev")), say=print)
    with pytest.raises(ValueError, match=r"data\.speech\.folder must name the folder"):
        data.load(Data(name="recordings", speech=Speech(folds=2)), say=print)
    with pytest.raises(ValueError, match="for data sets of speech; digits is none"):
        config.override(replace(recipes.get("digits")), ["data.speech.frames=3"])


def test_timit_is_not_fetched_and_says_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    with pytest.raises(DataError, match="LDC93S1"):
        data.load(Data(name="timit", speech=Speech()), say=print)
