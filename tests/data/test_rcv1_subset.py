import hashlib
import io
import pickle

import numpy as np
import pytest
import torch

from meannet import config, data
from meannet.data import DataError, rcv1_subset, reuters_size

CLASSES = 46


@pytest.fixture
def subset(real_data):
    if not (real_data / "rcv1-subset").is_dir():
        pytest.skip("no rcv1-subset there")
    return dict(np.load(real_data / "rcv1-subset" / "counts.npz", allow_pickle=False))


def test_the_selection_of_the_subset_is_that_of_plain_loops(subset):
    found = data.load(config.Data(name="rcv1-subset"), say=lambda line: None)
    names = [str(name) for name in subset["label_names"]]
    second = [k for k, name in enumerate(names) if name in rcv1_subset.SECOND_LEVEL]
    sizes: dict[int, list[int]] = {k: [] for k in second}
    for row in np.flatnonzero(subset["first_occurrence"]):
        own = [k for k in second if subset["labels"][row, k]]
        if len(own) == 1:
            sizes[own[0]].append(row)
    total = sum(map(len, sizes.values()))
    kept = {names[k]: rows for k, rows in sizes.items() if len(rows) >= 5 and len(rows) <= 0.2 * total}
    assert found.facts["classes_by_size"] == {name: len(rows) for name, rows in kept.items()}
    assert len(kept) == CLASSES == len(found.classes) and found.facts["documents"] == 14_512
    assert len(found.train.targets) == len(found.test.targets) == 7256
    # The documents' lengths in the 2000 words, counted without SciPy.
    totals = np.zeros(47_236)
    chosen = sorted(row for rows in kept.values() for row in rows)
    starts, places, counts = (subset[name] for name in ("indptr", "indices", "counts"))
    for row in chosen:
        totals[places[starts[row] : starts[row + 1]]] += counts[starts[row] : starts[row + 1]]
    top = np.zeros(47_236, bool)
    top[np.argsort(-totals, kind="stable")[:2000]] = True
    lengths = sorted(int(top[places[starts[row] : starts[row + 1]]].sum()) for row in chosen)
    assert sorted(torch.cat([part.inputs.starts.diff() for part in (found.train, found.test)]).tolist()) == lengths


def test_made_up_documents_have_the_papers_size_and_the_subsets_statistics(subset, monkeypatch):
    monkeypatch.setattr(reuters_size, "DOCUMENTS", 30_000)
    said = []
    found = data.load(config.Data(name="reuters-size"), say=said.append)
    real = data.load(config.Data(name="rcv1-subset", selection=reuters_size.SELECTION), say=lambda line: None)
    assert "say nothing about text" in said[0] and found.facts["made_up"]
    assert found.classes == real.classes and len(found.classes) == 50
    assert found.train.inputs.shape == found.test.inputs.shape == (15_000, 2000)
    assert found.facts["words_a_document"] == pytest.approx(real.facts["words_a_document"], rel=0.02)
    ours, theirs = (torch.bincount(d.train.inputs.columns, minlength=2000) / len(d.train.inputs) for d in (found, real))
    assert torch.corrcoef(torch.stack((ours, theirs)))[0, 1] > 0.99
    assert found.train.inputs.values.mean() == pytest.approx(real.train.inputs.values.mean().item(), rel=0.02)


def test_an_archive_that_would_execute_is_refused(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return (print, ("executed",))

    stream = io.BytesIO()
    np.savez(stream, counts=np.array([Trap()], dtype=object))
    assert b"executed" in pickle.dumps(Trap())
    put(tmp_path, monkeypatch, stream.getvalue())
    with pytest.raises(DataError, match="allow_pickle"):
        rcv1_subset.read()


def test_arrays_that_do_not_fit_together_are_refused(tmp_path, monkeypatch):
    names = np.array(rcv1_subset.SECOND_LEVEL)
    good = {
        "counts": np.ones(2, "u2"),
        "indices": np.array([0, 4], "i4"),
        "indptr": np.array([0, 1, 2], "i8"),
        "shape": np.array([2, 5]),
        "labels": np.ones((2, 55), "u1"),
        "label_names": names,
        "first_occurrence": np.ones(2, bool),
    }
    for name, value in {
        "good": None,
        "indices": np.array([0, 5], "i4"),
        "indptr": np.array([0, 3, 2], "i8"),
        "labels": np.ones((3, 55), "u1"),
        "counts": np.ones(2, "f4"),
    }.items():
        stream = io.BytesIO()
        np.savez(stream, **(good if name == "good" else good | {name: value}))
        put(tmp_path, monkeypatch, stream.getvalue())
        if name == "good":
            assert rcv1_subset.read()[0].shape == (2, 5)
        else:
            with pytest.raises(DataError, match="do not fit together"):
                rcv1_subset.read()


def test_another_file_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"missing; rcv1-subset cannot be fetched, put counts\.npz into"):
        rcv1_subset.read()
    (tmp_path / "rcv1-subset").mkdir()
    (tmp_path / "rcv1-subset" / "counts.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match="checksum is wrong"):
        rcv1_subset.read()
    with pytest.raises(DataError, match="checksum is wrong"):
        rcv1_subset.fetch(force=False, say=pytest.fail)


def put(tmp_path, monkeypatch, content: bytes) -> None:
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    (tmp_path / "rcv1-subset").mkdir(exist_ok=True)
    (tmp_path / "rcv1-subset" / "counts.npz").write_bytes(content)
    monkeypatch.setattr(rcv1_subset, "SHA256", hashlib.sha256(content).hexdigest())
