"""Learning from patches of pictures in shards: the stream, updates, ten views and whole runs, against torch by hand."""

import copy
import hashlib
import io
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import photographs
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from toys import outcome

from meannet import experiment as experiments
from meannet import passes, patches, report, tenviews
from meannet.config import override
from meannet.core import philox
from meannet.data import DataError, imagenet, shards
from meannet.data.stream import Stream
from meannet.experiment import Interrupted, Options
from meannet.fast.images import compiled_step
from meannet.fast.patches import Fast
from meannet.nn.conv import RandomGroupConv2d, TwoInputConv2d
from meannet.ranks import Ranks
from meannet.runlog import RunFolder
from meannet.views import centred_views

SIZE, BATCH = 40, 8
REAL = Path(os.environ.get("MEANNET_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data").absolute()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    source = photographs.as_folders(root / "source")
    out = root / "data" / "imagenet"
    imagenet.prepare(source, out=out, workers=1, say=lambda _: None, size=SIZE, cases=15)
    return root / "data"


@pytest.fixture(autouse=True)
def prepared(folder, monkeypatch):
    monkeypatch.setenv("MEANNET_DATA", str(folder))
    monkeypatch.setattr(passes, "ASK_EVERY", 1)
    return patches.open_prepared(held_out=False)


def made(prepared, **changes):
    experiment = photographs.toy(**changes)
    return experiment, patches.make_fleet(experiment, prepared, torch.device("cpu"))


def shown(prepared, epochs, workers=0, **start):
    """All that a stream gives: cases' pixels and labels, mini-batch by mini-batch."""
    with Stream(prepared.folder, "train", BATCH, workers) as stream:
        plan = patches.plan(3, prepared.cases, BATCH, epochs, Ranks(), **start)
        return [(pixels.copy(), labels.tolist()) for pixels, labels in patches.batches(stream, plan)]


def alike(one, two):
    return len(one) == len(two) and all(
        np.array_equal(a[0], b[0]) and a[1] == b[1] for a, b in zip(one, two, strict=True)
    )


def test_an_interrupted_stream_repeats_and_skips_nothing(prepared):
    whole = shown(prepared, 3)
    assert len(whole) == 3 * 5 and [len(labels) for _, labels in whole[:5]] == [8, 8, 8, 8, 3]
    for done in (1, 4, 5, 12):
        epoch, update = divmod(done, 5)
        assert alike(shown(prepared, 3, epoch=epoch, update=update), whole[done:])


@pytest.mark.parametrize("workers", [1, 3])
def test_how_many_workers_decode_does_not_show(prepared, workers):
    assert alike(shown(prepared, 2, workers), shown(prepared, 2))


def test_a_stream_gives_the_pictures_in_the_order_of_the_epoch(prepared):
    reader, pixels = shards.Reader(prepared.folder, "train"), np.zeros((SIZE, SIZE, 3), np.uint8)
    order = philox.order(torch.tensor([3]), 1, prepared.cases)[0].tolist()
    found = shown(prepared, 2, epoch=1)
    assert sorted(order) == list(range(prepared.cases))
    for place, case in enumerate(order):
        reader.pixels(case, pixels)
        assert np.array_equal(found[place // BATCH][0][place % BATCH], pixels)
        assert found[place // BATCH][1][place % BATCH] == reader.index[case, 3]


@pytest.mark.parametrize("world", [2, 4, 8])
def test_ranks_share_every_mini_batch_without_overlap(prepared, world):
    alone = list(patches.plan(0, prepared.cases, BATCH, 2, Ranks()))
    shares = [list(patches.plan(0, prepared.cases, BATCH, 2, Ranks(rank, world))) for rank in range(world)]
    assert all(
        np.concatenate(parts).tolist() == whole.tolist()
        for whole, parts in zip(alone, zip(*shares, strict=True), strict=True)
    )


def test_a_lost_or_damaged_picture_is_named(prepared, tmp_path):
    copied = tmp_path / "imagenet"
    shutil.copytree(prepared.folder, copied)
    path = copied / "train-00001.tar"
    path.write_bytes(path.read_bytes()[:1000])
    for workers in (0, 1):
        with (
            Stream(copied, "train", BATCH, workers) as stream,
            pytest.raises(DataError, match=r"train-00001.*cut short"),
        ):
            list(stream.batches([range(8), range(14, 22)]))
    shutil.copy(prepared.folder / path.name, path)
    first = int(np.load(copied / "train.npy")[16, 1])
    content = bytearray(path.read_bytes())
    content[first : first + 20] = bytes(20)
    path.write_bytes(content)
    with Stream(copied, "train", BATCH, 1) as stream, pytest.raises(DataError, match=r"train-00001.*case 16 of train"):
        list(stream.batches([range(14, 22)]))


def test_a_worker_that_dies_is_told(prepared):
    with Stream(prepared.folder, "train", BATCH, 1) as stream:
        assert stream.team is not None
        stream.team.members[0][0].kill()
        with pytest.raises(RuntimeError, match="a worker process was ended by signal 9"):
            list(stream.batches([range(8)] * 4))


def learned(engine, prepared, epochs=2, lr=0.05):
    with Stream(prepared.folder, "train", BATCH, 0) as stream:
        found = patches.batches(stream, patches.plan(0, prepared.cases, BATCH, epochs, Ranks()))
        for epoch in range(epochs):
            engine.begin(5 * epoch, lr, 0.9)
            for update in range(5):
                pixels, targets = next(found)
                engine.take(pixels, targets, min(BATCH, prepared.cases - BATCH * update))
                engine.update_()
    return engine.tally()


def test_updates_are_torchs_on_the_same_patches_and_masks(prepared):
    experiment, fleet = made(prepared)
    twin = copy.deepcopy(fleet.nets[0]).train()
    tally = learned(patches.Plain(fleet, BATCH, math.inf, Ranks()), prepared)
    layers = twin.weight_layers()
    decay = experiment.patches.weight_decay
    groups = [{"params": [layer.layer.weight for layer in layers], "weight_decay": decay}]
    groups += [{"params": [layer.layer.bias for layer in layers], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    total, update = 0.0, 0
    for epoch in range(2):
        total = 0.0
        for pixels, labels in shown_by(prepared, 0, epoch):
            x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() - prepared.mean) * experiment.patches.scale
            seen = centred_views(x, torch.zeros_like(prepared.mean), 0, update, 32)
            outputs, targets = twin(seen), torch.tensor(labels)
            optimizer.zero_grad()
            F.cross_entropy(outputs, targets).backward()
            optimizer.step()
            total += float(F.cross_entropy(outputs, targets, reduction="sum").detach())
            update += 1
    np.testing.assert_allclose(tally.loss, [total], rtol=1e-5)
    for mine, theirs in zip(fleet.nets[0].parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)


def shown_by(prepared, seed, epoch):
    with Stream(prepared.folder, "train", BATCH, 0) as stream:
        plan = patches.plan(seed, prepared.cases, BATCH, epoch + 1, Ranks(), epoch=epoch)
        yield from patches.batches(stream, plan)


@pytest.mark.parametrize("limit", [math.inf, 0.5])
def test_fast_updates_do_what_plain_ones_do(prepared, limit):
    (_, plain), (_, quick) = made(prepared), made(prepared)
    one, two = patches.Plain(plain, BATCH, limit, Ranks()), Fast(quick, BATCH, limit, Ranks())
    two.plain.stepped = compiled_step("aot_eager")
    tallies = [learned(engine, prepared) for engine in (one, two)]
    assert any(layer.layer.joined for layer in quick.nets[0].weight_layers()[1:5])
    for name in ("loss", "errors", "active", "moved"):
        first, second = (getattr(found, name).double() for found in tallies)
        np.testing.assert_allclose(first, second, rtol=1e-5)
    for name, tensor in plain.state().items():
        np.testing.assert_allclose(tensor, quick.state()[name], rtol=1e-4, atol=1e-6)


def test_joined_groups_are_the_groups():
    x, image = torch.randn(2, 8, 6, 6).double(), torch.randn(2, 3, 12, 12).double()
    for layer, inputs in (
        (RandomGroupConv2d(8, 12, 3, 4, seed=5, padding=1, stride=2), (x,)),
        (TwoInputConv2d(8, 12, 5, 2, seed=5), (x, image)),
    ):
        layer.double()
        apart = layer(*inputs)
        gradients = torch.autograd.grad(apart.square().sum(), tuple(layer.parameters()))
        layer.joined = True
        together = layer(*inputs)
        np.testing.assert_allclose(together.detach(), apart.detach(), rtol=1e-10)
        for one, two in zip(
            gradients, torch.autograd.grad(together.square().sum(), tuple(layer.parameters())), strict=True
        ):
            np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def log_mean(outputs, axis):
    """Log of the mean probability, without the probabilities, which may be too small for any float."""
    logs = outputs - np.logaddexp.reduce(outputs, -1, keepdims=True)
    return np.logaddexp.reduce(logs, axis) - math.log(outputs.shape[axis])


@pytest.mark.parametrize("times", [1, 1e5])  # the latter makes float32 probabilities of zero
def test_ten_views_are_averaged_and_the_best_five_counted(prepared, monkeypatch, times):
    monkeypatch.setattr(tenviews, "AT_ONCE", 3)
    monkeypatch.setattr(tenviews, "TOP", 2)
    experiment, fleet = made(prepared)
    fleet.weights[-1].mul_(times)
    found = tenviews.judge(fleet, prepared, "val", np.arange(7), Ranks(), 1)
    reader, pixels, net = shards.Reader(prepared.folder, "val"), np.zeros((SIZE, SIZE, 3), np.uint8), fleet.nets[0]
    wrong = beyond = logs = least = 0
    with torch.no_grad():
        for case in range(7):
            reader.pixels(case, pixels)
            image = (
                torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() - prepared.mean
            ) * experiment.patches.scale
            views = [image[:, a : a + 32, b : b + 32] for a, b in ((4, 4), (0, 0), (0, 8), (8, 0), (8, 8))]
            views = torch.stack([*views, *(view.flip(-1) for view in views)])
            mean, right = log_mean(net.eval()(views).double().numpy(), 0), int(reader.index[case, 3])
            rank = int((mean > mean[right]).sum())
            wrong, beyond, logs = wrong + (rank > 0), beyond + (rank > 1), logs + float(mean[right])
            least = min(least, mean[right])
    assert (times == 1) == (np.exp(least, dtype=np.float32) > 0)
    assert (found["errors"], found["top5_errors"]) == (wrong, beyond)
    assert found["log_probability"] == pytest.approx(logs / 7, rel=1e-5)


def test_sampled_networks_that_are_sure_of_different_classes_are_combined_by_their_logs(prepared):
    _, fleet = made(prepared)
    net, counts, cases = fleet.nets[0], [1, 2, 3, 5], 14
    fleet.weights[-1].mul_(1e6)
    outputs = np.zeros((5, cases, 10, 3))
    with torch.no_grad():
        ((images, labels),) = tenviews._blocks(fleet, prepared, "train", np.arange(cases), 0)
        views = tenviews._centred(net, fleet, images)
        for sample in range(5):
            for view in range(10):
                with net.train().sampling(sample, 0):
                    outputs[sample, :, view] = net(views[:, view]).double()
    logs = log_mean(outputs, 2)
    wrong = [int((logs[:count].sum(0).argmax(1) != labels.numpy()).sum()) for count in counts]
    found = tenviews.sampled(fleet, prepared, "train", np.arange(cases), 0, counts)
    assert found["geometric"] == wrong and (np.exp(logs, dtype=np.float32) == 0).any()


@pytest.mark.parametrize("recipe", ["imagenet.h_backprop", "imagenet.h_dropout"])
def test_a_run_leaves_a_whole_folder(recipe, tmp_path, capsys):
    from meannet.cli import main

    result = experiments.run(photographs.toy(recipe), tmp_path / "run", Options(workers=1))
    (arm,) = result["arms"]
    dense = "" if recipe.endswith("backprop") else "-12-12"
    assert arm["net"] == f"3x32x32-c8-c8-c8-c8-c8{dense}-3" and arm["n_test"] == 7 and len(arm["errors"]) == 1
    assert 0 <= arm["metrics"]["top5_errors"][0] == 0 and result["data"]["judged_on"] == "validation"
    assert result["claim"]["value"] == pytest.approx(0.07 * (48.6 if "back" in recipe else 42.4), abs=0.06)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3] and all("top5_error" in line for line in lines)
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "validation errors of 7" in page and "of 7 validation pictures" in page and "test picture" not in page
    assert main(["run", "--resume", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "validation errors of 7 (" in printed and "not among its best five for 0 of them" in printed
    again = experiments.resume(tmp_path / "run")
    assert again == json.loads(json.dumps(result))


def test_pictures_are_decoded_by_no_more_workers_than_the_control_group_has_processors(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(5)), raising=False)
    monkeypatch.setattr("meannet.cores.quota", lambda: 2.5)
    experiments.run(photographs.toy(epochs=1), tmp_path / "run")
    assert RunFolder(tmp_path / "run").began_with("workers") == 2


@pytest.mark.parametrize("after", [2, 5, 8])
def test_a_run_that_was_stopped_within_an_epoch_and_resumed_is_the_unbroken_one(after, tmp_path):
    whole = photographs.toy()
    experiments.run(whole, tmp_path / "whole", Options(workers=0))
    asked = 0

    def stop():
        nonlocal asked
        asked += 1
        return asked >= after

    with pytest.raises(Interrupted):
        experiments.run(whole, tmp_path / "broken", Options(workers=0, stop=stop))
    experiments.resume(tmp_path / "broken", Options(workers=1))
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


def test_the_rate_is_searched_for_among_powers_of_ten_and_kept(tmp_path):
    said = []
    toy = photographs.toy()
    searching = replace(toy, patches=replace(toy.patches, search=5))
    result = experiments.run(searching, tmp_path / "run", Options(workers=0, say=said.append))
    assert math.log10(result["lr"]) == round(math.log10(result["lr"]))
    tried = [float(line.split()[2].rstrip(":")) for line in said if line.startswith("learning rate")]
    assert tried[-1] == result["lr"] and tried == [10.0**-k for k in range(len(tried))]
    fixed = override(searching, ["patches.search=0", f"optim.lr={result['lr']}"])
    experiments.run(fixed, tmp_path / "fixed", Options(workers=0))
    one, two = (outcome(tmp_path / name)["metrics"] for name in ("run", "fixed"))
    assert one == two


@pytest.mark.parametrize("sd", [1.5, 2.5, 4.0])
def test_a_rate_that_kills_a_badly_begun_net_is_refused_though_it_reduces_the_objective(sd, tmp_path):
    said = []
    toy = photographs.toy()
    searching = replace(toy, patches=replace(toy.patches, search=5))
    badly_begun = replace(searching, net=replace(toy.net, initial_sd=sd))
    result = experiments.run(badly_begun, tmp_path / "run", Options(workers=0, say=said.append))
    assert said[0].endswith("; 1 rank with 0 workers to decode pictures")
    before, after = (float(word) for word in said[1].split()[4:7:2])
    assert said[1].startswith("learning rate 1:") and math.log(3) < after < before
    assert result["lr"] < 1 and not any(arm.get("stopped") for arm in result["arms"])


def test_of_several_ranks_the_one_that_saves_says_when(prepared):
    """The others see no file written, and would ask for the next at once."""
    experiment, fleet = made(prepared)
    parts = {"experiment": experiment, "folder": RunFolder(Path()), "data": prepared, "fleet": fleet, "engine": None}
    parts |= {"options": Options(save_minutes=0.0), "name": "", "workers": 0, "seconds": lambda: 0.0}
    first, second = (passes.Loop(ranks=Ranks(rank, 2), saved_at=-1e9, **parts) for rank in range(2))
    assert first.due() and not second.due()
    first.saving = 1e9
    assert not first.due()


def test_the_pace_is_told_once_long_before_the_first_epoch_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "TOLD_AFTER", 3)
    said = []
    experiments.run(photographs.toy(), tmp_path / "run", Options(workers=0, say=said.append))
    (line,) = [line for line in said if "pictures a second: an epoch takes" in line]
    assert float(line.split()[0].replace(",", "")) > 0


@pytest.mark.parametrize("minutes", [1.0, 1e-9])  # the latter saves wherever it may
def test_a_net_that_diverges_is_named_and_never_saved(tmp_path, minutes):
    toy = override(photographs.toy(epochs=2), ["optim.lr=1e30", "optim.limit=inf"])
    result = experiments.run(toy, tmp_path / "run", Options(workers=0, save_minutes=minutes))
    (arm,) = result["arms"]
    assert arm["errors"] == [] and arm["stopped"][0]["epoch"] == 1 and "diverged" in arm["stopped"][0]["why"]
    for path in (tmp_path / "run").glob("*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(path).values())
    report.write([tmp_path / "run"], tmp_path / "report.html")  # though no epoch was recorded
    assert "diverged" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["train.npy", "val.npy", "train.mean.npy"])
def test_labels_or_means_that_changed_are_noticed_before_a_run_begins(name, tmp_path, monkeypatch):
    shutil.copytree(imagenet.where(), tmp_path / "data" / "imagenet")
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))
    path = tmp_path / "data" / "imagenet" / name
    content = bytearray(path.read_bytes())
    content[152] ^= 1  # of an index: a label
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} is damaged: its checksum is wrong; prepare again"):
        experiments.run(photographs.toy(), tmp_path / "run")
    path.unlink()
    with pytest.raises(DataError, match=rf"{name} cannot be read \(No such file or directory\)"):
        experiments.run(photographs.toy(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def _rewritten(folder, document, part, kind, array):
    """Another array, with the checksum that belongs to it."""
    content = io.BytesIO()
    np.save(content, array)
    about = document["parts"][part][kind]
    (folder / about["name"]).write_bytes(content.getvalue())
    about["sha256"] = hashlib.sha256(content.getvalue()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(size="40"),
        lambda d: d.update(size=-1),
        lambda d: d.update(digest=None),
        lambda d: d.update(parts=[]),
        lambda d: d.update(classes={}),
        lambda d: d["classes"][0].pop("words"),
        lambda d: d["parts"].pop("val"),
        lambda d: d["parts"].update(test={}),
        lambda d: d["parts"]["train"].pop("shards"),
        lambda d: d["parts"]["train"].update(shards="abc"),
        lambda d: d["parts"]["train"].update(mean=None),
        lambda d: d["parts"]["train"].update(cases="35"),
        lambda d: d["parts"]["train"]["shards"][0].pop("bytes"),
        lambda d: d["parts"]["train"]["shards"][0].pop("sha256"),
        lambda d: d["parts"]["train"]["shards"][0].update(name="/etc/passwd"),
        lambda d: d["parts"]["train"]["index"].update(name="../train.npy"),
    ],
)
def test_an_index_that_lacks_anything_is_named_by_whoever_reads_it(change, prepared, tmp_path, monkeypatch, capsys):
    copied = tmp_path / "imagenet"
    shutil.copytree(prepared.folder, copied)
    document = json.loads((copied / "index.json").read_text())
    change(document)
    (copied / "index.json").write_text(json.dumps(document))
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"index.json is damaged \(.+\); preparing again makes it anew"):
        patches.open_prepared(held_out=False)
    (checked,) = imagenet.check()
    assert not checked.ok and not imagenet.status().present


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [("index", (3, 0), 9), ("index", (3, 1), -5), ("index", (3, 2), 2**60), ("index", (3, 3), 3), ("mean", 0, np.nan)],
)
def test_cases_and_means_that_cannot_be_are_refused_before_a_run_begins(
    kind, place, value, prepared, tmp_path, monkeypatch
):
    copied = tmp_path / "imagenet"
    shutil.copytree(prepared.folder, copied)
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    document = json.loads((copied / "index.json").read_text())
    right = np.load(copied / document["parts"]["train"][kind]["name"])
    wrong = right.copy()
    wrong[place] = value
    for array in (wrong, right.astype(np.float16), right[:-1]):
        _rewritten(copied, document, "train", kind, array)
        (copied / "index.json").write_text(json.dumps(document))
        with pytest.raises(DataError, match=r"train\.(mean\.)?npy is damaged: .*; prepare again"):
            patches.open_prepared(held_out=False)


def test_settings_that_cannot_be_are_refused(tmp_path, monkeypatch):
    toy = photographs.toy()
    for setting, says in (
        ("seeds=0,1", "nets that read shards train one a run"),
        ("patches.groups=1,3,2,2,2", "divisors of the layer's banks"),
        ("patches.size=36", "a multiple of twice the stride"),
        ("patches.filters=7,4,3,3,3", "odd"),
        ("patches.pooled=2,5", "the same size"),
        ("data.cases=5", "learned from whole"),
    ):
        with pytest.raises(ValueError, match=says):
            override(toy, [setting])
    with pytest.raises(ValueError, match="at most the 40 pixels"):
        experiments.run(override(toy, ["patches.size=48"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    with pytest.raises(DataError, match="`meannet data prepare imagenet SRC` makes it"):
        experiments.run(toy, tmp_path / "run")


def test_real_photographs_go_all_the_way(tmp_path, monkeypatch):
    """All the pictures of ImageNet that there are, one a class: prepared as published, learned from and judged on."""
    found = sorted((REAL / "imagenet-samples").glob("*.JPEG"))
    if not found:
        pytest.skip("no imagenet-samples in MEANNET_DATA or ../shared/data")
    source = tmp_path / "source"
    for part in ("train", "val"):
        for path in found:
            (source / part / path.name[:9]).mkdir(parents=True)
            (source / part / path.name[:9] / path.name).symlink_to(path)
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))
    document = imagenet.prepare(source, workers=1, say=lambda _: None)
    for part in document["parts"].values():
        assert part["cases"] == len(found) and part["counts"].get("corrupt", 0) == 0
    toy = photographs.toy(epochs=2, size=64)
    result = experiments.run(toy, tmp_path / "run", Options(workers=1))
    assert result["arms"][0]["n_test"] == len(result["data"]["classes"]) == len(found)


def test_classes_of_the_same_words_are_told_apart(tmp_path, monkeypatch):
    shutil.copytree(imagenet.where(), tmp_path / "data" / "imagenet")
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))
    path = tmp_path / "data" / "imagenet" / "index.json"
    document = json.loads(path.read_text())
    for one, words in zip(document["classes"], ("crane", "dog", "crane"), strict=True):
        one["words"] = words
    path.write_text(json.dumps(document))
    assert patches.open_prepared(held_out=False).classes == ("crane (n01440764)", "dog", "crane (n03028079)")
