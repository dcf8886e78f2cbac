"""The paper's selection from files in the form of LYRL2004, held against plain loops over the same documents."""

import gzip
import math
import tracemalloc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from newswire import SIZES, collection  # noqa: F401, a fixture

from meannet import config, data
from meannet.config import Selection
from meannet.data import DataError, fetch, reuters

CHOSEN = Selection(words=30, largest=0.4)


def load(selection=CHOSEN, *, held_out=False):
    return data.load(config.Data(name="reuters", held_out=held_out, selection=selection), say=lambda line: None)


def rows(cases: data.Cases) -> list[tuple[float, ...]]:
    dense = cases.inputs[torch.arange(len(cases.inputs))]
    return [(*case, target) for case, target in zip(dense.tolist(), cases.targets.tolist(), strict=True)]


def test_classes_documents_words_and_inputs_are_those_of_a_plain_loop(collection):  # noqa: F811
    found = load()
    kept = [name for name in sorted(SIZES) if name not in ("C15", "GMIL")]  # 46 % of the documents, and four
    assert found.classes == tuple(kept)
    assert found.facts["classes_by_size"] == {name: SIZES[name] for name in ("C11", "E21", "GSPO", "M14")}
    assert {name: n for name, n in found.facts["dropped_classes"].items() if n} == {"C15": 90, "GMIL": 4}
    documents = {number: topic for number, topic in collection.alone().items() if topic in kept}
    totals = collection.occurrences(documents)
    words = sorted(sorted(totals, key=lambda word: (-totals[word], word))[:30])
    expected = []
    for number, topic in documents.items():
        counts = Counter(collection.documents[number][1])
        inputs = [np.float32(math.log(1 + counts[word])) for word in words]
        expected.append((*map(float, inputs), kept.index(topic)))
    both = np.array(sorted(rows(found.train) + rows(found.test)))
    assert both == pytest.approx(np.array(sorted(expected)), rel=1e-6)


def test_the_halves_are_equal_random_and_repeatable(collection):  # noqa: F811
    found, again, other = load(), load(), load(replace(CHOSEN, seed=7))
    sizes = len(found.train.targets), len(found.test.targets)
    assert abs(sizes[0] - sizes[1]) <= 1 and sum(sizes) == found.facts["documents"] == 101
    assert found.digest == again.digest != other.digest
    assert sorted(rows(found.train) + rows(found.test)) == sorted(rows(other.train) + rows(other.test))


def test_held_out_documents_are_a_share_of_the_training_half_alone(collection):  # noqa: F811
    found, choosing = load(), load(held_out=True)
    assert rows(choosing.train) + rows(choosing.test) == rows(found.train)
    assert len(choosing.test.targets) == round(0.2 * len(found.train.targets))


def test_every_open_choice_is_an_option(collection):  # noqa: F811
    after = load(replace(CHOSEN, alone="after"))
    # A document in C15, which is dropped, and in C11 is in one class that is left.
    assert after.facts["classes_by_size"]["C11"] == SIZES["C11"] + 7
    assert "GMIL" in load(replace(CHOSEN, fewest=4)).classes
    assert "C15" in load(replace(CHOSEN, largest=0.5)).classes
    digests = {load(replace(CHOSEN, **one)).digest for one in ({}, {"commonest": "documents"}, {"words_of": "train"})}
    assert len(digests) == 3
    with pytest.raises(ValueError, match="did not come divided"):
        load(replace(CHOSEN, split="published"))
    with pytest.raises(ValueError, match=r"data.selection.words=\d+"):
        load(replace(CHOSEN, words=500))


def test_what_was_chosen_is_said_beside_the_papers(collection):  # noqa: F811
    said = []
    data.load(config.Data(name="reuters", selection=CHOSEN), say=said.append)
    assert said[0].startswith(
        "reuters: 4 classes, 101 documents of 210 (the paper's data: 50 classes, 402,738 documents)"
    )
    assert said[1] == "classes: C11 40, E21 30, GSPO 25, M14 6"
    assert said[2].startswith("dropped: C15 90, GMIL 4; without documents: C12, C13")


@pytest.mark.parametrize(
    ("name", "line", "content", "says"),
    [
        ("lyrl2004_tokens_train.dat", 3, ".I 12\n.W\n.I x\n", "'.I x' where '.I NUMBER' should be"),
        ("lyrl2004_tokens_train.dat", 2, ".I 12\nword word\n", "'word word' where '.W' should be"),
        ("lyrl2004_tokens_train.dat", 1, "word\n", "'word' where '.I NUMBER' should be"),
        ("lyrl2004_tokens_train.dat", 2, ".I 12\n.I 13\n.W\n", "document 12 has no .W line"),
        ("lyrl2004_tokens_test_pt2.dat", 3, ".I 1\n.W\n" + "x" * (1 << 22), "longer than"),
        ("rcv1-v2.topics.qrels", 2, "C11 12 1\nC11 twelve 1\n", "'C11 twelve 1' where 'TOPIC DOCUMENT 1' should be"),
        ("rcv1-v2.topics.qrels", 1, "C11 12\n", "'C11 12' where"),
    ],
)
def test_a_malformed_line_is_named_by_file_and_line(collection, tmp_path, name, line, content, says):  # noqa: F811
    path = tmp_path / "data" / "reuters" / f"{name}.gz"
    path.write_bytes(gzip.compress(content.encode()))
    with pytest.raises(DataError) as error:
        load()
    assert str(error.value).startswith(f"{path}, line {line}: ") and says in str(error.value)
    assert "\n" not in str(error.value)


def test_damaged_missing_and_doubled_parts_are_refused(collection, tmp_path, monkeypatch):  # noqa: F811
    where = tmp_path / "data" / "reuters"
    path = where / "lyrl2004_tokens_test_pt1.dat.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(DataError, match="not a sound gzip file"):
        load()
    path.write_bytes((where / "lyrl2004_tokens_test_pt2.dat.gz").read_bytes())
    with pytest.raises(DataError, match="twice"):
        load()
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(DataError, match="has topics and is in no token file"):
        load()
    assert [one.ok for one in reuters.check()] == [True, True, False, True, True, True]
    path.unlink()
    monkeypatch.setattr(fetch, "_open", lambda url: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(DataError, match="put it into"):
        load()


def test_files_may_be_unzipped(collection, tmp_path):  # noqa: F811
    before = load().digest
    for path in (tmp_path / "data" / "reuters").glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert load().digest == before


def test_reading_tokens_takes_memory_for_one_document(tmp_path):
    path = tmp_path / "tokens.dat.gz"
    text = b".I 1\n.W\n" + b"some words of a document\n" * 200 + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(1500):  # 7.5 MB
            stream.write(text)
    tracemalloc.start()
    assert sum(len(words) for _, words in reuters.tokens(path)) == 1500 * 1000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_the_token_files_hold_all_documents_of_the_corpus():
    assert sum(file.documents for file in reuters.TOKENS) == reuters.TOPICS.documents == 804_414
    assert len(set(reuters.SECOND_LEVEL)) == 55


def test_missing_files_are_fetched_verified_and_named_whole(collection, tmp_path, mirror, monkeypatch):  # noqa: F811
    before, where = load().digest, tmp_path / "data" / "reuters"
    there = {path.name: path.read_bytes() for path in where.iterdir()}
    mirror.files |= there
    for name in ("TOKENS", "TOPICS"):
        known = getattr(reuters, name)
        changed = [
            f._replace(urls=(f"{mirror.url}none", f"{mirror.url}{f.name}.gz"), content="") for f in _several(known)
        ]
        monkeypatch.setattr(reuters, name, tuple(changed) if name == "TOKENS" else changed[0])
    part = where / "lyrl2004_tokens_test_pt3.dat.gz"
    for path in (part, where / "rcv1-v2.topics.qrels.gz"):
        path.unlink()
    (where / ".12345678.part.rcv1-v2.topics.qrels.gz").write_bytes(b"left by a process that was killed")
    assert load().digest == before
    assert {path.name: path.read_bytes() for path in where.iterdir()} == there
    assert mirror.asked == ["none", part.name, "none", "rcv1-v2.topics.qrels.gz"]
    part.unlink()
    mirror.files[part.name] = gzip.compress(b".I 5\n.W\nword\n")
    said = []
    with pytest.raises(DataError, match=f"answered with a good {part.name}; put it into {where}"):
        reuters.fetch(force=False, say=said.append)
    assert any(line.endswith(": 1 documents where 42 should be") for line in said) and not part.exists()
    monkeypatch.setattr(reuters, "TOPICS", reuters.TOPICS._replace(content="0" * 64))
    with pytest.raises(DataError, match="no source"):
        fetch.fetch("reuters", force=True, say=said.append)
    assert {path.name for path in where.iterdir()} == set(there) - {part.name}


def _several(known):
    return [known] if isinstance(known, reuters.File) else known
