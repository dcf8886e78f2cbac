"""Shards: tar files of some thousand JPEGs each, an index that finds every case in them, and checksums of all.

index.json          classes; for each part its shards, their checksums, counts and the two files below
train-00000.tar     JPEGs, then sum.npy, the sum of their pixels
train-00000.json    what is in that file and where, its checksum, and which pictures it was to be made of
train.npy           (cases, 4): shard, offset, length, class
train.mean.npy      (256, 256, 3) float32, the mean of each pixel over the training cases
"""

import hashlib
import io
import json
import os
import tarfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meannet.atomic import write_atomically, written_atomically
from meannet.data import DataError, pictures

INDEX = "index.json"
FORMAT = 1
HANDLES = 64  # shards that a reader keeps open
NAMED = 20  # corrupt pictures that a shard's file names
REMEDY = "`meannet data check imagenet` says which files are damaged; remove these, and preparing again makes them anew"


def writing(start: dict[str, Any]) -> Any:
    """A worker that writes one shard a job into start["folder"]."""
    pictures.pillow()
    folder, size, quality = Path(start["folder"]), start["size"], start["quality"]
    return lambda job: write(folder, job["name"], job["items"], size=size, quality=quality)


def write(folder: Path, name: str, items: Sequence[Sequence[Any]], *, size: int, quality: int) -> dict[str, Any]:
    """One shard out of pictures (file, offset, size, name, class); returns its name and counts.

    The JSON file comes first and the shard after it, each whole or not at all, so a shard with both is done.
    """
    facts: dict[str, Any] = {"plan": plan_of(items), "counts": {"pictures": len(items)}, "corrupt": []}
    rows: dict[str, list[Any]] = {"offsets": [], "lengths": [], "labels": [], "names": []}
    total = np.zeros((size, size, 3), np.uint32)
    with written_atomically(folder / f"{name}.tar") as file:
        hashed = _Hashed(file)
        with tarfile.open(fileobj=hashed, mode="w", format=tarfile.USTAR_FORMAT) as archive:  # type: ignore[call-overload]
            for source, offset, length, title, label in items:
                try:
                    jpeg, pixels, kind = pictures.resized(read_at(source, offset, length), size, quality)
                except pictures.Corrupt as error:
                    _count(facts["counts"], "corrupt")
                    facts["corrupt"] += [f"{title}: {error}"] if len(facts["corrupt"]) < NAMED else []
                    continue
                _count(facts["counts"], kind)
                total += pixels
                rows["offsets"].append(_add(archive, f"{label:04d}/{len(rows['offsets']):06d}.jpg", jpeg))
                rows["lengths"].append(len(jpeg))
                rows["labels"].append(label)
                rows["names"].append(title)
            facts["sum"] = [_add(archive, "sum.npy", _npy(total)), len(_npy(total))]
        facts |= {"name": f"{name}.tar", "bytes": hashed.size, "sha256": hashed.state.hexdigest(), **rows}
        write_atomically(folder / f"{name}.json", json.dumps(facts).encode())
    return {"name": name, "counts": facts["counts"]}


def written(folder: Path, name: str, plan: str) -> dict[str, Any] | None:
    """What a shard's JSON file says, if the shard is there and was made of these pictures."""
    try:
        facts = json.loads((folder / f"{name}.json").read_text())
        whole = facts["plan"] == plan and (folder / f"{name}.tar").stat().st_size == facts["bytes"]
        whole = whole and len({len(facts[each]) for each in ("offsets", "lengths", "labels")}) == 1
        _ = facts["name"], facts["sha256"], facts["counts"]["pictures"], facts["corrupt"], facts["sum"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts if whole else None


def gather(folder: Path, part: str, shards: Sequence[dict[str, Any]], *, mean: bool) -> dict[str, Any]:
    """Write a part's index, and its mean, from what its shards' JSON files say; returns what index.json says of it."""
    rows, counts = [], {}
    total = None
    for number, facts in enumerate(shards):
        cases = len(facts["offsets"])
        rows.append(np.column_stack([np.full(cases, number), facts["offsets"], facts["lengths"], facts["labels"]]))
        for kind, count in facts["counts"].items():
            counts[kind] = counts.get(kind, 0) + count
        if mean:
            try:
                one = np.load(io.BytesIO(read_at(folder / facts["name"], *facts["sum"])), allow_pickle=False)
            except (ValueError, EOFError):
                raise DataError(f"{folder / facts['name']} is damaged; remove it and prepare again") from None
            total = one.astype(np.uint64) if total is None else total + one
    index = np.concatenate(rows).astype(np.int64)
    if not len(index):
        raise DataError(f"no picture of part {part} could be read; the first problems: {_problems(shards)}")
    files = {"index": (f"{part}.npy", _npy(index))}
    if total is not None:
        files["mean"] = (f"{part}.mean.npy", _npy((total / len(index)).astype(np.float32)))
    for name, content in files.values():
        write_atomically(folder / name, content)
    named = [{name: facts[name] for name in ("name", "bytes", "sha256")} for facts in shards]
    for one, facts in zip(named, shards, strict=True):
        one["cases"] = len(facts["offsets"])
    written = {kind: {"name": name, "sha256": _sha256(content)} for kind, (name, content) in files.items()}
    return {"cases": len(index), "counts": counts, "corrupt": _problems(shards), "shards": named, **written}


class Reader:
    """One part of a prepared set, open for reading."""

    def __init__(self, folder: Path, part: str):
        self.folder, self.part = folder, part
        document = read_index(folder)
        if part not in document["parts"]:
            raise DataError(f"{folder} has no part {part}; it has {', '.join(document['parts'])}")
        about = document["parts"][part]
        self.size, self.names = document["size"], [shard["name"] for shard in about["shards"]]
        try:
            self.index = np.load(folder / about["index"]["name"], mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / about['index']['name']} cannot be read ({error}); {REMEDY}") from None
        self.open: OrderedDict[int, int] = OrderedDict()  # handles by shard, the one used last at the end

    def __len__(self) -> int:
        return len(self.index)

    def jpeg(self, case: int) -> bytes:
        shard, offset, length, _ = self.index[case].tolist()
        handle = self.open.pop(shard, None)
        if handle is None:
            if len(self.open) == HANDLES:
                os.close(self.open.popitem(last=False)[1])
            handle = os.open(self.folder / self.names[shard], os.O_RDONLY)
        self.open[shard] = handle
        content = os.pread(handle, length, offset)
        if len(content) < length:
            raise DataError(f"{self.folder / self.names[shard]} is cut short; {REMEDY}")
        return content

    def pixels(self, case: int, out: np.ndarray) -> None:
        try:
            pictures.decode(self.jpeg(case), out)
        except pictures.Corrupt as error:
            shard = self.names[int(self.index[case][0])]
            raise DataError(f"{self.folder / shard}: case {case} of {self.part}: {error}; {REMEDY}") from None

    def close(self) -> None:
        while self.open:
            os.close(self.open.popitem()[1])


def read_index(folder: Path) -> dict[str, Any]:
    """What index.json says, with all in it that others take for granted."""
    path = folder / INDEX
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise DataError(f"{path} is of format {document['format']}, and this version reads {FORMAT}")
        _check(document)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; `meannet data prepare imagenet SRC` makes it") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        raise DataError(f"{path} is damaged ({why}); preparing again makes it anew") from None
    return document


def _check(document: dict[str, Any]) -> None:
    def need(good: bool, what: str) -> None:
        if not good:
            raise ValueError(f"{what} is not what it should be")

    def natural(number: Any) -> bool:
        return isinstance(number, int) and number > 0

    need(natural(document["size"]), "size")
    need(isinstance(document["digest"], str), "digest")
    classes, parts = document["classes"], document["parts"]
    need(bool(classes) and all(isinstance(one[name], str) for one in classes for name in ("id", "words")), "classes")
    _ = parts["train"]["mean"], parts["val"]
    for part, about in parts.items():
        need(natural(about["cases"]), f"cases of {part}")
        need(all(natural(one["bytes"]) for one in about["shards"]), f"shards of {part}")
        for one in (*about["shards"], about["index"], *([about["mean"]] if "mean" in about else ())):
            need(Path(one["name"]).name == one["name"] and isinstance(one["sha256"], str), f"a file of {part}")


def read_cases(folder: Path, document: dict[str, Any], part: str) -> np.ndarray:
    """The index of a part: a label that changed would never be noticed."""
    about = document["parts"][part]
    found, path = _array(folder, about["index"]), folder / about["index"]["name"]
    if found.dtype != np.int64 or found.shape != (about["cases"], 4):
        raise DataError(f"{path} is damaged: {found.dtype} {found.shape} is no list of cases; prepare again")
    shard, offset, length, label = found.T
    sizes = np.array([one["bytes"] for one in about["shards"]] or [0])
    good = (shard >= 0) & (shard < len(sizes)) & (label >= 0) & (label < len(document["classes"]))
    good &= (offset >= 0) & (length > 0) & (length <= sizes[np.where(good, shard, 0)] - offset)
    if not good.all():
        raise DataError(f"{path} is damaged: case {int(good.argmin())} cannot be; prepare again")
    return found


def read_mean(folder: Path, document: dict[str, Any]) -> np.ndarray:
    """(size, size, 3) float32, of each pixel over the training cases."""
    about, size = document["parts"]["train"]["mean"], document["size"]
    mean = _array(folder, about)
    if mean.dtype != np.float32 or mean.shape != (size, size, 3) or not np.isfinite(mean).all():
        raise DataError(f"{folder / about['name']} is damaged: no mean of pictures of {size} x {size}; prepare again")
    return mean


def _array(folder: Path, about: dict[str, str]) -> np.ndarray:
    """An index or a mean, held against the checksum in index.json."""
    path = folder / about["name"]
    try:
        content = path.read_bytes()
        if _sha256(content) != about["sha256"]:
            raise DataError(f"{path} is damaged: its checksum is wrong; prepare again")
        return np.load(io.BytesIO(content), allow_pickle=False)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); prepare again") from None
    except (ValueError, EOFError):
        raise DataError(f"{path} is damaged: it holds no array; prepare again") from None


def read_at(path: str | Path, offset: int, size: int) -> bytes:
    with Path(path).open("rb", buffering=0) as stream:
        return os.pread(stream.fileno(), size, offset)


def plan_of(items: Sequence[Sequence[Any]]) -> str:
    """A hash of which pictures a shard is made of, wherever they lie."""
    state = hashlib.sha256()
    for _, _, size, name, label in items:
        state.update(f"{name} {size} {label}\n".encode())
    return state.hexdigest()


class _Hashed:
    """A file that is hashed as it is written."""

    def __init__(self, file: Any):
        self.file, self.state, self.size = file, hashlib.sha256(), 0

    def write(self, content: bytes) -> int:
        self.state.update(content)
        self.size += len(content)
        return self.file.write(content)

    def tell(self) -> int:
        return self.size


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> int:
    """Add a member that does not depend on when and by whom; returns where its content begins."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    first = archive.offset + tarfile.BLOCKSIZE  # type: ignore[attr-defined]
    archive.addfile(entry, io.BytesIO(content))
    return first


def _count(counts: dict[str, int], kind: str) -> None:
    counts[kind] = counts.get(kind, 0) + 1


def _problems(shards: Sequence[dict[str, Any]]) -> list[str]:
    return [line for facts in shards for line in facts["corrupt"]][:NAMED]


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
