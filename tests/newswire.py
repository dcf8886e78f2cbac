"""A collection in the form of LYRL2004 that is small enough to write here, and its counts by plain loops."""

import gzip
import random
from collections import Counter
from pathlib import Path

import pytest

from meannet.data import reuters

PARTS = ("train", "test_pt0", "test_pt1", "test_pt2", "test_pt3")
SIZES = {"C15": 90, "C11": 40, "E21": 30, "GSPO": 25, "M14": 6, "GMIL": 4}  # documents with one topic


class Collection:
    """Documents: number, topics, words."""

    def __init__(self, seed: int = 0):
        draw = random.Random(seed)
        common = [f"word{k}" for k in range(40)]
        self.documents: dict[int, tuple[list[str], list[str]]] = {}
        kinds = [[name] for name, size in SIZES.items() for _ in range(size)]
        kinds += [["C15", "C11"]] * 7 + [["E21", "M14"]] * 5 + [[]] * 3
        draw.shuffle(kinds)
        numbers = draw.sample(range(2000, 9000), len(kinds))
        for number, topics in zip(numbers, kinds, strict=True):
            own = [f"{name.lower()}{draw.randrange(3)}" for name in topics for _ in range(4)]
            words = own + draw.choices(common, weights=range(40, 0, -1), k=draw.randrange(3, 20))
            draw.shuffle(words)
            above = sorted({f"{name[0]}CAT" for name in topics}) or ["GCAT"]  # every document has some topic
            self.documents[number] = (topics + above, words)

    def write(self, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As the five token files and the topics, zipped; `reuters` then means these."""
        where.mkdir(parents=True)
        numbers = list(self.documents)
        shares = [numbers[k :: len(PARTS)] for k in range(len(PARTS))]
        files = []
        for part, share in zip(PARTS, shares, strict=True):
            lines = []
            for number in share:
                words = self.documents[number][1]
                lines += [f".I {number}", ".W", " ".join(words[:5]), " ".join(words[5:]), ""]
            name = f"lyrl2004_tokens_{part}.dat"
            (where / f"{name}.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
            files.append(reuters.File(name, (f"https://localhost/{name}.gz",), len(share)))
        pairs = [(topic, number) for number, (topics, _) in self.documents.items() for topic in topics]
        content = "".join(f"{topic} {number} 1\n" for topic, number in pairs)
        (where / "rcv1-v2.topics.qrels.gz").write_bytes(gzip.compress(content.encode()))
        monkeypatch.setattr(reuters, "TOKENS", tuple(files))
        monkeypatch.setattr(reuters, "TOPICS", reuters.TOPICS._replace(documents=len(numbers)))

    def alone(self) -> dict[int, str]:
        """The second-level topic of the documents that have exactly one, in order of their numbers."""
        second = {
            number: [t for t in topics if t in reuters.SECOND_LEVEL] for number, (topics, _) in self.documents.items()
        }
        return {number: second[number][0] for number in sorted(second) if len(second[number]) == 1}

    def occurrences(self, numbers) -> Counter:
        return Counter(word for number in numbers for word in self.documents[number][1])


@pytest.fixture
def collection(tmp_path, monkeypatch) -> Collection:
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))
    made = Collection()
    made.write(tmp_path / "data" / "reuters", monkeypatch)
    return made
