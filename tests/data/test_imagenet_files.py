"""Preparing ImageNet: folders and tar files to shards, against Pillow and numpy by hand; kills, full disks."""

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import photographs
import pytest
from PIL import Image
from toys import no_file_above

from meannet import cli
from meannet.data import DataError, ilsvrc, imagenet, shards


def quiet(_):
    pass


def prepare(source, out, **settings):
    return imagenet.prepare(source, out=out, workers=1, say=quiet, size=48, cases=10, **settings)


@pytest.fixture
def folders(tmp_path):
    return photographs.as_folders(tmp_path / "source")


def test_folders_and_tar_files_become_the_same_shards(folders, tmp_path):
    tars = photographs.as_tars(tmp_path / "tars")
    first, second = prepare(folders, tmp_path / "one"), prepare(tars, tmp_path / "two")
    assert first["digest"] != "" and [c["id"] for c in second["classes"]] == list(photographs.IDS)
    assert [c["words"] for c in second["classes"]] == list(photographs.WORDS)
    for part in ("train", "val"):
        one, two = (shards.Reader(tmp_path / name, part) for name in ("one", "two"))
        assert len(one) == len(two) == first["parts"][part]["cases"]
        # Validation pictures of a folder come class by class, those of the tar file by their numbers.
        assert sorted(map(one.jpeg, range(len(one)))) == sorted(map(two.jpeg, range(len(two))))
        labelled = [{(r.jpeg(k), int(r.index[k, 3])) for k in range(len(r))} for r in (one, two)]
        assert labelled[0] == labelled[1]
    with tarfile.open(tmp_path / "two" / "train-00001.tar") as archive:  # any program can read them
        assert archive.getnames()[:1] == ["0000/000000.jpg"] and archive.getnames()[-1] == "sum.npy"


def test_a_case_is_its_picture_squeezed_to_a_square_and_the_mean_is_theirs(folders, tmp_path):
    document = prepare(folders, tmp_path / "out", quality=95)
    reader, pixels = shards.Reader(tmp_path / "out", "train"), np.zeros((48, 48, 3), np.uint8)
    originals = [content for members in photographs.training().values() for _, content in sorted(members.items())]
    good = [content for content in originals if len(content) != 600]
    total = np.zeros((48, 48, 3))
    for case, content in enumerate(good):
        by_hand = np.asarray(Image.open(io.BytesIO(content)).convert("RGB").resize((48, 48), Image.Resampling.BICUBIC))
        reader.pixels(case, pixels)
        assert np.abs(pixels.astype(int) - by_hand).mean() < 4  # what a JPEG loses
        total += by_hand
    mean = np.load(tmp_path / "out" / document["parts"]["train"]["mean"]["name"])
    np.testing.assert_allclose(mean, total / len(good), rtol=1e-5)


def test_greyscale_cmyk_and_corrupt_pictures_are_counted(folders, tmp_path):
    about = prepare(folders, tmp_path / "out")["parts"]["train"]
    assert about["counts"] == {"pictures": 36, "colour": 17, "greyscale": 9, "cmyk": 9, "corrupt": 1}
    assert about["cases"] == 35 and about["corrupt"][0].startswith(f"{photographs.IDS[1]}_0.JPEG: ")
    assert [shard["cases"] for shard in about["shards"]] == [10, 9, 10, 6]


def test_a_killed_preparation_goes_on_and_ends_in_the_same_files(tmp_path):
    source = photographs.as_folders(tmp_path / "source", count=60)
    code = (
        "import sys; from pathlib import Path; from meannet.data import imagenet; "
        "imagenet.prepare(Path(sys.argv[1]), out=Path(sys.argv[2]), workers=1, say=print, size=256, cases=10)"
    )
    whole = imagenet.prepare(source, out=tmp_path / "whole", workers=1, say=quiet, size=256, cases=10)
    out, kills = tmp_path / "broken", 0
    for wait_for in (2, 7):
        process = subprocess.Popen([sys.executable, "-c", code, source, out])
        while process.poll() is None and len(list(out.glob("*.tar"))) < wait_for:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills == 2 and not (out / "index.json").exists()
    for _ in range(500):  # the killed one's worker sees that it is alone
        if not list(out.glob(".*.tmp")):
            break
        time.sleep(0.02)
    made = [path.stat().st_mtime_ns for path in sorted(out.glob("*.tar"))][:2]
    said = []
    found = imagenet.prepare(source, out=out, workers=2, say=said.append, size=256, cases=10)
    assert any("shards are there already" in line for line in said)
    assert [path.stat().st_mtime_ns for path in sorted(out.glob("*.tar"))][:2] == made
    assert found == whole
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {path.name for path in out.iterdir()} == names
    assert all((out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in names)


def test_what_is_prepared_is_left_alone_and_a_shard_that_went_away_made_anew(folders, tmp_path):
    out = tmp_path / "out"
    first, made = prepare(folders, out), {path.name: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    assert prepare(folders, out) == first
    (out / "train-00001.tar").unlink()
    (out / "index.json").unlink()  # what is left is enough to make it again
    assert prepare(folders, out) == first
    again = {path.name: path.stat().st_mtime_ns for path in out.glob("*.tar")}
    assert {name for name in made if made[name] != again[name]} == {"train-00001.tar"}
    about = out / "val-00000.json"
    facts = json.loads(about.read_text())
    for name in ("offsets", "sum", "corrupt", "name"):  # what is said of a shard is whole too, or the shard made anew
        about.write_text(json.dumps({k: v for k, v in facts.items() if k != name}))
        assert prepare(folders, out) == first and json.loads(about.read_text()) == facts


def test_an_index_that_is_damaged_is_made_anew_and_another_set_refused(folders, tmp_path):
    out = tmp_path / "out"
    first = prepare(folders, out)
    (out / "index.json").write_text('{"format"')
    assert prepare(folders, out) == first
    (folders / "train" / photographs.IDS[0] / "another.JPEG").write_bytes(photographs.picture(7))
    with pytest.raises(DataError, match="holds another prepared set"):
        prepare(folders, out)


def test_a_shard_whose_sum_of_pixels_is_damaged_is_named_with_the_remedy(folders, tmp_path):
    out = tmp_path / "out"
    prepare(folders, out)
    (out / "index.json").unlink()
    offset, _ = json.loads((out / "train-00000.json").read_text())["sum"]
    with (out / "train-00000.tar").open("r+b") as shard:
        shard.seek(offset)
        shard.write(bytes(40))
    with pytest.raises(DataError, match=r"train-00000.tar is damaged; remove it and prepare again"):
        prepare(folders, out)


def test_files_of_every_kind_are_read_or_left_out_with_a_reason_that_does_not_change(folders, tmp_path):
    where = folders / "train" / photographs.IDS[0]
    grey = np.full((50, 60), 100 * 257, np.uint16)
    Image.fromarray(grey).save(where / "deep.png")
    (where / "empty.JPEG").write_bytes(b"")
    (where / "text.JPEG").write_text("not a picture")
    (where / "._deep.png").write_bytes(b"what macOS keeps beside files")
    (where / "folder.JPEG").mkdir()
    (where / "Ä b\n.JPEG").write_bytes(photographs.picture(8))
    with open(os.fsencode(where) + b"/raw\xff.JPEG", "wb") as file:  # noqa: PTH123, no Path has such a name
        file.write(photographs.picture(9))
    about = prepare(folders, tmp_path / "out")["parts"]["train"]
    assert about["counts"] == {"pictures": 41, "colour": 19, "greyscale": 9, "cmyk": 9, "other": 1, "corrupt": 3}
    assert {"empty.JPEG: an empty file", "text.JPEG: neither a JPEG nor a PNG"} < set(about["corrupt"])
    each = [json.loads((tmp_path / "out" / f"train-0000{k}.json").read_text()) for k in range(2)]
    names = each[0]["names"] + each[1]["names"]
    assert {"Ä b\n.JPEG", "raw\\xff.JPEG", "deep.png"} < set(names)
    reader, pixels = shards.Reader(tmp_path / "out", "train"), np.zeros((48, 48, 3), np.uint8)
    reader.pixels(names.index("deep.png"), pixels)
    assert np.abs(pixels.astype(int) - 100).max() <= 1


@pytest.mark.parametrize("part", ["train", "val"])
def test_pictures_that_would_count_twice_are_refused(folders, part):
    wnid = photographs.IDS[0]
    there = {path.name: path.read_bytes() for path in (folders / part / wnid).iterdir()}
    (folders / part / f"{wnid}.tar").write_bytes(photographs.tar(there))
    with pytest.raises(DataError, match=rf"class {wnid} has two pictures named .*JPEG and .*{wnid}\.tar; remove one"):
        ilsvrc.find(folders, quiet)


def test_a_copy_of_a_class_and_a_pipe_that_is_named_like_a_picture_are_no_part_of_it(folders):
    whole, wnid = ilsvrc.find(folders, quiet), photographs.IDS[0]
    shutil.copytree(folders / "train" / wnid, folders / "train" / f"{wnid}.old")
    os.mkfifo(folders / "train" / wnid / "pipe.JPEG")  # to read it would wait for ever
    assert ilsvrc.find(folders, quiet) == whole


@pytest.mark.parametrize("where", ["outer", "inner"])
@pytest.mark.parametrize("how", ["damaged", "zeros", "cut before a header", "cut within a header"])
def test_tar_files_with_a_header_that_is_lost_are_refused(tmp_path, where, how):
    """By tarfile they are read without a word, as far as they go."""

    def spoiled(content):
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            first = archive.getmembers()[2].offset
        if how.startswith("cut"):
            return content[: first + 100 * (how == "cut within a header")]
        return (
            content[:first] + bytes(512 if how == "zeros" else 10) + content[first + (512 if how == "zeros" else 10) :]
        )

    source = photographs.as_tars(tmp_path / "tars")
    inner = {f"{wnid}.tar": photographs.tar(members) for wnid, members in photographs.training().items()}
    last = f"{photographs.IDS[1]}.tar"
    if where == "inner":
        last = f"{photographs.IDS[2]}_1.JPEG"
        inner[f"{photographs.IDS[2]}.tar"] = spoiled(inner[f"{photographs.IDS[2]}.tar"])
    content = photographs.tar(inner)
    (source / "ILSVRC2012_img_train.tar").write_bytes(spoiled(content) if where == "outer" else content)
    with pytest.raises(DataError, match=rf"not a sound tar file \(damaged or cut short after {last}\)"):
        ilsvrc.find(source, quiet)


def test_an_interrupt_leaves_whole_shards_and_says_how_to_go_on(tmp_path):
    source, out = photographs.as_folders(tmp_path / "source", count=60), tmp_path / "data" / "imagenet"
    code = "import sys; from meannet import cli; from meannet.data import imagenet; "
    code += "imagenet.prepare.__kwdefaults__['cases'] = 10; sys.exit(cli.main(sys.argv[1:]))"
    call = [sys.executable, "-c", code, "data", "prepare", "imagenet", source, "--workers", "1"]
    environment = os.environ | {"MEANNET_DATA": str(tmp_path / "data")}
    process = subprocess.Popen(call, env=environment, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(list(out.glob("*.tar"))) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert "stopped; whole shards stay. Go on with the same command" in process.communicate(timeout=60)[1]
    assert process.returncode == 130 and list(out.glob(".*.tmp")) == [] and not (out / "index.json").exists()


def test_a_ctrl_c_is_not_heard_by_workers_even_as_they_start():
    """A terminal sends it to the whole group of the process that it started."""
    code = "import os; from meannet.data.team import Team; start = dict(folder='.', size=8, quality=9); "
    code += "team = Team('meannet.data.shards:writing', start, 2); "
    code += "print(*[os.getpgid(process.pid) == process.pid for process, _ in team.members], os.getpgid(0))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, process_group=0) as process:
        said, _ = process.communicate(timeout=60)
    assert said.split() == ["True", "True", str(process.pid)]


def test_a_picture_in_a_shard_that_is_of_another_size_is_named_and_not_decoded(folders, tmp_path):
    prepare(folders, tmp_path / "out")
    reader, path = shards.Reader(tmp_path / "out", "train"), tmp_path / "out" / "train-00000.tar"
    content, first = bytearray(path.read_bytes()), int(reader.index[0, 1])
    place = content.index(b"\xff\xc0", first) + 5
    for side in (b"\x01\x00", b"\xf0\x00"):  # the second is so large that Pillow refuses to open it
        content[place : place + 4] = side * 2
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"train-00000\.tar: case 0 of train: .*(256 x 256 where|pixels\))"):
            reader.pixels(0, np.zeros((48, 48, 3), np.uint8))


def test_a_full_disk_leaves_whole_shards_and_one_line(folders, tmp_path):
    out = tmp_path / "out"
    with no_file_above(9000), pytest.raises(OSError, match="File too large") as caught:
        prepare(folders, out)
    assert str(caught.value.filename).endswith(".tar") and not (out / "index.json").exists()
    assert list(out.glob("*.tar")) == [] and list(out.glob(".*.tmp")) == []
    assert prepare(folders, out)["parts"]["train"]["cases"] == 35


def test_too_little_room_is_said_before_any_work(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet, "BYTES_A_CASE", 10**14)
    with pytest.raises(DataError, match=r"43 pictures need some .* GB or more, and .* GB are free; make room"):
        prepare(folders, tmp_path / "out")


def test_what_is_no_ilsvrc_is_answered_with_what_there_should_be(tmp_path):
    def message(source):
        with pytest.raises(DataError) as caught:
            ilsvrc.find(source, quiet)
        return str(caught.value)

    with pytest.raises(ValueError, match="is no folder"):
        ilsvrc.find(tmp_path / "nowhere", quiet)
    (tmp_path / "cats").mkdir()
    assert "neither train/ with a folder for each class nor ILSVRC20" in message(tmp_path) and "cats" in message(
        tmp_path
    )
    source = photographs.as_tars(tmp_path / "tars")
    kit = source / "ILSVRC2012_devkit_t12.tar.gz"
    content = kit.read_bytes()
    kit.unlink()
    assert "pictures of unknown classes; put the development kit" in message(source)
    kit.write_bytes(content[: len(content) // 2])
    assert "not a sound tar file" in message(source)
    short = gzip.compress(gzip.decompress(content)[:2048])  # so that all of it is read, and its checksum with it
    kit.write_bytes(short[:-8] + bytes(8))
    assert "not a sound tar file (CRC" in message(source)
    members = photographs.development_kit()
    name = "ILSVRC2012_validation_ground_truth.txt"
    kit.write_bytes(photographs.tar({f"data/{k}": v for k, v in (members | {name: b"1\n2\n"}).items()}, "w:gz"))
    assert "has 7 pictures and its list of classes 2 lines" in message(source)
    kit.write_bytes(photographs.tar({f"data/{k}": v for k, v in (members | {"meta.mat": b"MATLAB"}).items()}, "w:gz"))
    assert "meta.mat of the development kit cannot be read" in message(source)
    (source / "ILSVRC2012_img_val.tar").unlink()
    kit.unlink()
    assert "no validation pictures" in message(source)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_source_that_may_not_be_read_is_named(folders, tmp_path):
    path = next((folders / "train" / photographs.IDS[0]).iterdir())
    for closed in (path, path.parent):
        closed.chmod(0)
        with pytest.raises(PermissionError) as caught:
            prepare(folders, tmp_path / "out")
        closed.chmod(0o755)
        assert caught.value.filename == str(closed)


def test_the_command_prepares_lists_checks_and_refuses(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))
    assert cli.main(["data", "prepare", "imagenet", str(folders), "--workers", "1"]) == 0
    printed = capsys.readouterr()
    assert "train: 35 cases in 1 shards (17 colour" in printed.out and "left out of train: n02084071_0" in printed.out
    assert "43 of 43 pictures" in printed.err and "a second" in printed.err
    assert cli.main(["data", "check", "imagenet"]) == 0
    assert "ok  imagenet" in capsys.readouterr().out
    (row,) = [row for row in _listed(capsys) if row["name"] == "imagenet"]
    assert row["present"] and row["size"] > 0
    shard = tmp_path / "data" / "imagenet" / "val-00000.tar"
    content = bytearray(shard.read_bytes())
    content[700] ^= 1
    shard.write_bytes(content)
    assert cli.main(["data", "check", "imagenet"]) == 1
    assert f"BAD imagenet: {shard}: checksum is wrong" in capsys.readouterr().out
    (folders / "train" / photographs.IDS[0] / "another.JPEG").write_bytes(photographs.picture(7))
    assert cli.main(["data", "prepare", "imagenet", str(folders)]) == 1
    assert "holds another prepared set" in capsys.readouterr().err
    for wrong, says in (
        (["prepare", "mnist", "x"], "only imagenet is prepared"),
        (["prepare", "imagenet"], "name the folder"),
        (["prepare"], "only imagenet is prepared"),
        (["prepare", "imagenet", "x", "--force"], "--force is for `meannet data fetch`"),
        (["check", "imagenet", "x"], "is for `meannet data prepare`"),
    ):
        assert cli.main(["data", *wrong]) == 2
        assert says in capsys.readouterr().err
    assert cli.main(["data", "fetch", "imagenet"]) == 1
    assert "cannot be fetched" in capsys.readouterr().err


def _listed(capsys):
    assert cli.main(["data", "list", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["data"]
