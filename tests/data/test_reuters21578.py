"""Reuters-21578 from archives of the form it comes in; only its own documents are read, and nothing written."""

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace

import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer

from meannet import config, data
from meannet.config import Selection
from meannet.data import DataError, reuters21578

CATS = {"training": ["earn", "acq", "earn crude", "crude"] * 3, "test": ["earn", "crude", "acq acq2"] * 2}
CHOSEN = Selection(words=8, fewest=1, largest=1.0, split="published", words_of="train")


def members() -> dict[str, bytes]:
    found, lines = {}, []
    for part, listed in CATS.items():
        for number, topics in enumerate(listed, start=100):
            name = f"{part}/{number}"
            lines.append(f"{name} {topics}")
            found[name] = (
                f"{topics.upper()} NEWS &lt;X>\n the {topics} of the year {number} said {topics}s' dlrs".encode()
            )
    return found | {"cats.txt": "\n".join(lines).encode(), "stopwords": b"the\nof\ndoesn't\n"}


def tarred(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The content known as Reuters-21578 is that of `members`; returns the data set's folder."""
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    state, files = hashlib.sha256(), members()
    for name in sorted(files):
        state.update(f"{name} {len(files[name])}\n".encode() + files[name])
    monkeypatch.setattr(reuters21578, "SHA256", state.hexdigest())
    (tmp_path / "reuters21578").mkdir()
    return tmp_path / "reuters21578"


def load(selection: Selection = CHOSEN) -> data.Dataset:
    return data.load(config.Data(name="reuters21578", selection=selection), say=lambda line: None)


def test_the_published_parts_and_counts_are_those_of_scikit_learn(small):
    (small / "reuters21578_aptemod.tar.gz").write_bytes(tarred({f"any/{n}": c for n, c in members().items()}))
    alone = {
        part: [number for number, topics in enumerate(CATS[part], start=100) if " " not in topics] for part in CATS
    }
    texts = {
        part: [members()[f"{part}/{n}"].decode().replace("&lt;", "<") for n in listed] for part, listed in alone.items()
    }
    model = CountVectorizer(stop_words=["the", "of", "doesn"], token_pattern=r"[^\W\d_]{2,}").fit(texts["training"])
    found = load(replace(CHOSEN, words=len(model.vocabulary_)))
    assert found.classes == ("acq", "crude", "earn") and found.facts["documents"] == 13
    for part, cases in (("training", found.train), ("test", found.test)):
        dense = cases.inputs[torch.arange(len(cases.inputs))]
        expected = torch.from_numpy(model.transform(texts[part]).toarray()).float().log1p()
        assert sorted(dense.tolist()) == sorted(expected.tolist())


def test_the_same_content_in_a_zip_file_is_as_good(small):
    (small / "reuters21578_aptemod.tar.gz").write_bytes(tarred({f"reuters/{n}": c for n, c in members().items()}))
    before = load().digest
    (small / "reuters21578_aptemod.tar.gz").unlink()
    with zipfile.ZipFile(small / "reuters.zip", "w") as archive:
        for name, content in members().items():
            archive.writestr(f"reuters/{name}", content)
    assert load().digest == before
    assert [one.ok for one in reuters21578.check()] == [True]


def test_members_that_lead_elsewhere_and_links_are_passed_over_and_nothing_is_written(small):
    files = {f"reuters/{n}": c for n, c in members().items()}
    odd = {"../training/100": b"x", "/etc/training/7": b"x", "a/b/test/100": b"x", "reuters/training/../9": b"x"}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, body in (odd | files).items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
        link = tarfile.TarInfo("reuters/training")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    (small / "reuters21578_aptemod.tar.gz").write_bytes(content.getvalue())
    assert len(load().train.targets) == 9
    assert [path.name for path in small.iterdir()] == ["reuters21578_aptemod.tar.gz"]


def test_an_archive_that_unpacks_without_end_is_refused(small, monkeypatch):
    monkeypatch.setattr(reuters21578, "MOST_BYTES", 10_000)
    (small / "reuters21578_aptemod.tar.gz").write_bytes(tarred({"reuters/training/1": bytes(20_000)}))
    with pytest.raises(DataError, match="unpacks to more than it should"):
        load()


@pytest.mark.parametrize(
    "content",
    [b"", b"not an archive", tarred({"reuters/training/1": b"x" * 5000})[:-40]],
    ids=["empty", "no archive", "cut short"],  # and not the bytes, which hold the time
)
def test_a_damaged_archive_is_refused_in_one_line(small, content):
    (small / "reuters21578_aptemod.tar.gz").write_bytes(content)
    with pytest.raises(DataError) as error:
        load()
    assert str(error.value).startswith(str(small)) and "\n" not in str(error.value)


def test_what_is_fetched_by_force_takes_the_place_of_a_damaged_archive(small, monkeypatch, tmp_path):
    good = tmp_path / "good.zip"
    with zipfile.ZipFile(good, "w") as archive:
        for name, content in members().items():
            archive.writestr(f"reuters/{name}", content)
    (small / "reuters21578_aptemod.tar.gz").write_bytes(b"damaged")
    with pytest.raises(DataError, match="fetch reuters21578 --force"):
        reuters21578.fetch(force=False, say=print)
    monkeypatch.setattr(reuters21578, "URL", good.as_uri())
    reuters21578.fetch(force=True, say=print)
    assert [found.ok for found in reuters21578.check()] == [True]


def test_other_content_than_the_known_is_refused(small):
    files = {f"reuters/{n}": c for n, c in members().items()}
    files["reuters/training/100"] += b"!"
    (small / "reuters21578_aptemod.tar.gz").write_bytes(tarred(files))
    with pytest.raises(DataError, match="not the Reuters-21578 known here"):
        load()


def test_the_real_collection_has_its_published_size(real_data):
    if not (real_data / "reuters21578").is_dir():
        pytest.skip("no Reuters-21578 there")
    found = data.load(config.Data(name="reuters21578"), say=lambda line: None)
    assert (len(found.train.targets), len(found.test.targets), len(found.classes)) == (6560, 2570, 50)
    assert found.facts["of_documents"] == 7769 + 3019 and found.facts["classes_by_size"]["earn"] == 3923
