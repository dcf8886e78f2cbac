"""Sets like ILSVRC's, generated: pictures of different sizes and kinds in a few classes, as folders or as tar files."""

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from meannet import recipes
from meannet.config import Experiment

IDS = ("n01440764", "n02084071", "n03028079")
WORDS = ("tench, Tinca tinca", "dog, domestic dog", "church, church building")


def picture(seed: int, kind: str = "RGB", label: int = 0) -> bytes:
    """A smooth picture whose colour depends on its class, as a JPEG."""
    random = np.random.default_rng(seed)
    rows, columns = random.integers(40, 90, 2)
    small = random.integers(0, 120, (4, 5, 3)) + 45 * np.eye(3, dtype=int)[label] * 3
    image = Image.fromarray(small.astype(np.uint8)).resize((int(columns), int(rows)), Image.Resampling.BICUBIC)
    out = io.BytesIO()
    image.convert(kind).save(out, "JPEG", quality=95)
    return out.getvalue()


def training(count: int = 12) -> dict[str, dict[str, bytes]]:
    """Pictures by class and name, in turn of the kinds that ILSVRC has; the first of the second class is corrupt."""
    kinds = ("RGB", "L", "RGB", "CMYK")
    found = {
        wnid: {f"{wnid}_{k}.JPEG": picture(100 * label + k, kinds[k % 4], label) for k in range(count)}
        for label, wnid in enumerate(IDS)
    }
    found[IDS[1]][f"{IDS[1]}_0.JPEG"] = picture(100, label=1)[:600]
    return found


def validation(count: int = 7) -> list[tuple[str, int, bytes]]:
    """Names, classes and pictures."""
    return [
        (f"ILSVRC2012_val_{k + 1:08d}.JPEG", (2 * k) % 3, picture(1000 + k, label=(2 * k) % 3)) for k in range(count)
    ]


def as_folders(root: Path, count: int = 12) -> Path:
    for wnid, members in training(count).items():
        (root / "train" / wnid).mkdir(parents=True)
        for name, content in members.items():
            (root / "train" / wnid / name).write_bytes(content)
    for name, label, content in validation():
        (root / "val" / IDS[label]).mkdir(parents=True, exist_ok=True)
        (root / "val" / IDS[label] / name).write_bytes(content)
    return root


def as_tars(root: Path, count: int = 12) -> Path:
    """As published: a tar file of tar files, pictures to be judged on without classes, and the development kit."""
    root.mkdir()
    inner = {f"{wnid}.tar": tar(members) for wnid, members in training(count).items()}
    (root / "ILSVRC2012_img_train.tar").write_bytes(tar(inner))
    (root / "ILSVRC2012_img_val.tar").write_bytes(tar({name: content for name, _, content in validation()}))
    kit = {f"ILSVRC2012_devkit_t12/data/{name}": content for name, content in development_kit().items()}
    (root / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(tar(kit, "w:gz"))
    return root


def development_kit() -> dict[str, bytes]:
    """Numbers of the classes run against the order of their ids, as ILSVRC's do in places."""
    from scipy.io import savemat

    kind = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object)]
    synsets = np.array([(3 - k, IDS[k], WORDS[k]) for k in range(3)] + [(4, "n00001740", "entity")], dtype=kind)
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets[:, None]})
    truth = "".join(f"{3 - label}\n" for _, label, _ in validation())
    return {"meta.mat": meta.getvalue(), "ILSVRC2012_validation_ground_truth.txt": truth.encode()}


def tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def toy(recipe: str = "imagenet.h_dropout", epochs: int = 3, size: int = 32, **changes: object) -> Experiment:
    """A recipe with few banks and units, small patches and mini-batches."""
    full = recipes.get(recipe)
    assert full.patches is not None
    small = replace(
        full,
        net=replace(full.net, hidden=tuple((12,) * len(sizes) for sizes in full.net.hidden), initial_sd=0.1),
        patches=replace(
            full.patches, size=size, banks=(8,) * 5, filters=(7, 5, 3, 3, 3), groups=(1, 2, 2, 4, 4), search=0
        ),
        optim=replace(full.optim.compressed(epochs), batch=8, limit=4.0),
        record_every=1,
    )
    return replace(small, **changes)
