"""Exported nets in the programs they are for: ONNX Runtime, torch.export.load, and Python without this package."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors.numpy import load_file
from toys import no_file_above, small, written

import meannet
from meannet import DropoutClassifier, DropoutRegressor, data
from meannet.cli import main
from meannet.config import Data

RANDOM = np.random.RandomState(0)
X = RANDOM.normal(size=(60, 5)) * 10.0 ** np.arange(-3, 2) + 4 * 10.0 ** np.arange(-3, 2)
Y = (X / 10.0 ** np.arange(-3, 2) @ RANDOM.normal(size=(5, 3))).argmax(1)
SETTINGS = {"hidden": (7, 5), "dropout_visible": 0.2, "lr": 0.1, "epochs": 3, "batch": 8, "random_state": 3}
FITTED = {
    "integers": DropoutClassifier(**SETTINGS | {"n_nets": 2}).fit(X, Y + 5),
    "words": DropoutClassifier(**SETTINGS | {"units": "logistic"}).fit(X, np.array(["no", "yes, é", ""])[Y]),
    "floats": DropoutClassifier(**SETTINGS | {"hidden": ()}).fit(X, np.array([1.0, 2.0, 7.0])[Y]),
    "truth": DropoutClassifier(**SETTINGS | {"standardize": False}).fit(X / 50, Y > 0),
    "multi-label": DropoutClassifier(**SETTINGS).fit(X, np.eye(3, dtype=int)[Y][:, :2]),
    "several": DropoutClassifier(**SETTINGS | {"n_nets": 2}).fit(
        X, np.stack((np.array(["a", "b", "c"], object)[Y], np.array(["x", "y", "x"], object)[Y]), 1)
    ),
    "regression": DropoutRegressor(**SETTINGS).fit(X, 1e4 * X[:, 0]),
    "regressions": DropoutRegressor(**SETTINGS | {"n_nets": 2}).fit(X, X[:, :2] * [1, 1e3]),
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two architectures, three arms and two seeds."""
    here = tmp_path_factory.mktemp("export")
    toy = small("digits", epochs=20, samples=0)
    toy = type(toy)(**vars(toy) | {"net": type(toy.net)(hidden=((12, 8), (9,)), units="rectified", initial_sd=0.3)})
    assert main(["run", str(written(toy, here / "toy.json")), "--out", str(here / "run")]) == 0
    return here / "run"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def in_onnx_runtime(path, inputs):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"inputs": np.asarray(inputs, np.float32)}), strict=True))


def answers_of(kind):
    """What an estimator predicts of X, and all its outputs, (cases, outputs)."""
    fitted = FITTED[kind]
    if "regression" in kind:
        return fitted.predict(X), fitted.predict(X).reshape(len(X), -1)
    outputs = fitted.predict_proba(X)
    return fitted.predict(X), np.concatenate(outputs, 1) if kind == "several" else outputs


def elsewhere(program: str) -> str:
    """What a Python prints that is not told of this checkout."""
    command = [sys.executable, "-W", "error", "-c", f"import sys\n{program}\nassert 'meannet' not in sys.modules"]
    environment = {"PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", FITTED)
def test_onnx_runtime_gives_what_the_estimator_gives_for_one_case_and_for_many(kind):
    fitted = FITTED[kind]
    fitted.export("net.onnx", to="onnx")
    for inputs in (X[:1], X):
        inputs = inputs / (50 if kind == "truth" else 1)
        found, expected = in_onnx_runtime("net.onnx", inputs), fitted.predict(inputs)
        if "regression" in kind:
            assert found["prediction"].shape == expected.shape
            np.testing.assert_allclose(found["prediction"], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
            continue
        probabilities = fitted.predict_proba(inputs)
        if kind == "several":
            for target in (0, 1):
                np.testing.assert_allclose(found[f"probabilities_{target}"], probabilities[target], atol=1e-5)
                assert found[f"label_{target}"].tolist() == expected[:, target].tolist()
            continue
        np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-5)
        labels = found["labels" if kind == "multi-label" else "label"].tolist()
        assert labels == expected.tolist() and type(labels[0]) is type(expected.tolist()[0])


def test_a_runs_exported_net_is_the_numpy_loop_over_its_saved_weights_times_what_is_kept(done):
    """Independent of every forward pass in the package, and of how it picks an arm and a seed."""
    digits = data.load(Data(name="digits"), say=print)
    state = load_file(done / "state.12-8.safetensors")
    net = 1 * 2 + 1  # arm dropout, the second of three; seed 1 of two
    x = digits.test.inputs.numpy().astype(np.float64)
    for k in range(3):
        keep = 1.0 if k == 0 else 0.5
        x = x @ (keep * state[f"weights.{k}"][net].T.astype(np.float64)) + state[f"biases.{k}"][net]
        x = np.maximum(x, 0) if k < 2 else np.exp(x - x.max(1, keepdims=True))
    expected = x / x.sum(1, keepdims=True)
    chosen = ["--net", "64-12-8-10", "--arm", "dropout", "--seed", "1"]
    for to, file in (("onnx", "a.onnx"), ("pt2", "a.pt2"), ("torch", "a.safetensors")):
        assert main(["export", str(done), *chosen, "--to", to, "-o", file]) == 0
    found = in_onnx_runtime("a.onnx", digits.test.inputs)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    wrong = int((found["label"] != digits.test.targets.numpy().astype(str)).sum())
    arms = json.loads((done / "result.json").read_text())["arms"]
    assert wrong == next(a for a in arms if (a["net"], a["name"]) == ("64-12-8-10", "dropout"))["errors"][1]
    double = digits.test.inputs.double()
    np.testing.assert_allclose(torch.export.load("a.pt2").module()(double), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(meannet.plain.load("a.safetensors")[0](double), expected, rtol=1e-12, atol=1e-15)


def test_all_seeds_are_averaged_and_pixels_divided_inside_the_exported_net(done):
    pixels = np.random.RandomState(1).randint(0, 256, (4, 64))
    probabilities = []
    for seed, scale in (("0", 1), ("1", 1), ("all", 255)):
        flags = ["--net", "64-9-10", "--seed", seed, "--divide", str(scale)]
        assert main(["export", str(done), *flags, "--to", "onnx", "-o", f"{seed}.onnx"]) == 0
        probabilities.append(in_onnx_runtime(f"{seed}.onnx", pixels / (255 / scale))["probabilities"])
    np.testing.assert_allclose(probabilities[2], (probabilities[0] + probabilities[1]) / 2, atol=1e-6)


def test_pt2_archives_need_no_meannet_and_are_exact():
    kinds = ("words", "several", "multi-label", "regressions")
    for kind in kinds:
        FITTED[kind].export(f"{kind}.pt2", to="pt2")
    np.save("x.npy", X)
    printed = elsewhere(
        "import json, numpy as np, torch\nx = torch.from_numpy(np.load('x.npy'))\n"
        f"for kind in {kinds}:\n    extra = {{'meannet.json': ''}}\n"
        "    net = torch.export.load(f'{kind}.pt2', extra_files=extra).module()\n"
        "    print(json.dumps([net(x).tolist(), net(x[:1]).tolist(), json.loads(extra['meannet.json'])]))"
    )
    for kind, line in zip(kinds, printed.splitlines(), strict=True):
        outputs, first, facts = json.loads(line)
        np.testing.assert_allclose(outputs, answers_of(kind)[1], rtol=1e-12)
        np.testing.assert_allclose(first, outputs[:1], rtol=1e-12)
        assert meannet.plain.answers(facts, torch.tensor(outputs, dtype=torch.float64)) == answers_of(kind)[0].tolist()


def test_a_pt2_archive_holds_no_pickle_and_no_path_of_this_machine():
    FITTED["words"].export("net.pt2", to="pt2")
    archive = zipfile.ZipFile("net.pt2")
    content = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    assert content["data/sample_inputs/model.pt"] == b"" and not [name for name in content if name.endswith(".pkl")]
    assert not [name for name, held in content.items() if b"data.pkl" in held or b"site-packages" in held]
    assert not [name for name, held in content.items() if str(Path(meannet.__file__).parent).encode() in held]
    payloads = json.loads(content["data/weights/model_weights_config.json"])["config"].values()
    assert len(payloads) == 8 and not any(payload["use_pickle"] for payload in payloads)


def test_the_programs_beside_plain_weights_run_without_meannet():
    kinds = ("integers", "several", "multi-label", "regression")
    for kind in kinds:
        FITTED[kind].export(f"{kind}.safetensors", to="torch")
    np.save("x.npy", X)
    printed = elsewhere(
        f"import runpy\nfor kind in {kinds}:\n    sys.argv = [f'{{kind}}.py', 'x.npy']\n"
        "    runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    rows = [line.split(",") for line in printed.splitlines()]
    for number, kind in enumerate(kinds):
        part = rows[number * len(X) : (number + 1) * len(X)]
        labels, outputs = answers_of(kind)
        count = labels.size // len(X)
        if kind != "regression":
            assert [row[:count] for row in part] == labels.reshape(len(X), -1).astype(str).tolist()
        np.testing.assert_allclose(np.array([row[count:] for row in part], float), outputs, rtol=1e-12)
    assert len(rows) == len(kinds) * len(X)


def test_the_exported_modules_refuse_cases_of_another_width():
    FITTED["words"].export("net.safetensors", to="torch")
    FITTED["words"].export("net.pt2", to="pt2")
    FITTED["words"].export("net.onnx", to="onnx")
    one = np.zeros((4, 1))  # which would stand for all five, by broadcasting
    with pytest.raises(ValueError, match="cases have 1 columns; the network takes 5"):
        meannet.plain.load("net.safetensors")[0](torch.from_numpy(one))
    with pytest.raises(RuntimeError, match="to be equal to 5, but got 1"):
        torch.export.load("net.pt2").module()(torch.from_numpy(one))
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="invalid dimensions"):
        in_onnx_runtime("net.onnx", one)


def test_an_onnx_file_says_what_it_holds_and_is_the_same_each_time(done):
    assert main(["export", str(done), "--net", "64-9-10", "--to", "onnx", "-o", "a.onnx"]) == 0
    held = onnx.load("a.onnx")
    facts = {entry.key: json.loads(entry.value) for entry in held.metadata_props}
    assert facts["classes"] == [list("0123456789")] and facts["sizes"] == [64, 9, 10] and facts["image"] == [8, 8]
    assert facts["of"] == "digits: 64-9-10, arm dropout+input, seed 0" and facts["meannet"] == meannet.__version__
    assert held.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "cases"
    assert main(["export", str(done), "--net", "64-9-10", "--to", "onnx", "-o", "b.onnx"]) == 0
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()


def test_a_column_that_float32_cannot_tell_apart_is_refused_for_onnx_and_exact_in_float64():
    late = np.column_stack((1.7e9 + RANDOM.normal(size=60), X))  # times in seconds, say, that differ by a few
    fitted = DropoutClassifier(**SETTINGS | {"lr": 1.0, "epochs": 30}).fit(late, (late[:, 0] > 1.7e9).astype(int))
    with pytest.raises(RuntimeError, match="do not fit into float32"):
        fitted.export("net.onnx", to="onnx")
    assert not list(Path().iterdir())
    fitted.export("net.pt2", to="pt2")
    outputs = torch.export.load("net.pt2").module()(torch.from_numpy(late))
    np.testing.assert_allclose(outputs, fitted.predict_proba(late), rtol=1e-12)


@pytest.mark.parametrize(("to", "file"), [("onnx", "net.onnx"), ("pt2", "net.pt2"), ("torch", "net.safetensors")])
def test_a_full_disk_leaves_the_file_that_was_there_and_nothing_else(done, capsys, to, file):
    Path(file).write_text("mine")
    capsys.readouterr()
    with no_file_above(1000):
        assert main(["export", str(done), "--net", "64-9-10", "--to", to, "-o", file, "--force"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err == f"meannet: File too large: {file}\n"
    assert [path.name for path in Path().iterdir()] == [file] and Path(file).read_text() == "mine"
    assert main(["export", str(done), "--net", "64-9-10", "--to", to, "-o", file, "--force"]) == 0


def test_weights_do_not_stay_without_the_program_that_reads_them():
    plain = Path(meannet.plain.__file__).stat().st_size
    tiny = DropoutClassifier(hidden=(2,), epochs=1).fit(X, Y)
    with no_file_above(plain - 1), pytest.raises(OSError, match="File too large"):
        tiny.export("net.safetensors", to="torch")
    assert not list(Path().iterdir())


def test_without_the_onnx_package_the_answer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "meannet.onnx_graph", raising=False)
    with pytest.raises(ValueError, match=r"pip install 'meannet\[onnx\]'"):
        FITTED["words"].export("net.onnx", to="onnx")


@pytest.mark.parametrize(
    ("path", "to", "answer"),
    [
        ("a.onnx", "onx", "to must be one of onnx, pt2, torch, not 'onx'; did you mean onnx?"),
        ("a.pt", "pt2", r"a\.pt must end in \.pt2 to hold pt2, as in a\.pt2"),
        ("folder.onnx", "onnx", r"folder\.onnx is a folder"),
        ("no/a.onnx", "onnx", "there is no folder no to write"),
        ("there.onnx", "onnx", r"there\.onnx is there already.*force=True"),
        ("there.safetensors", "torch", r"there\.py is there already"),
        ("torch.safetensors", "torch", r"torch\.py would stand in the way of Python's module torch"),
    ],
)
def test_a_wrong_target_is_refused_before_anything_is_written(path, to, answer):
    Path("folder.onnx").mkdir()
    for name in ("there.onnx", "there.py"):
        Path(name).write_text("mine")
    with pytest.raises(ValueError, match=answer):
        FITTED["words"].export(path, to=to)
    assert sorted(p.name for p in Path().iterdir()) == ["folder.onnx", "there.onnx", "there.py"]
    assert all(Path(name).read_text() == "mine" for name in ("there.onnx", "there.py"))
    FITTED["words"].export("there.onnx", to="onnx", force=True)
    assert Path("there.onnx").stat().st_size > 500


def test_a_run_or_an_estimator_is_never_exported_over(done, capsys):
    FITTED["regression"].save("net.safetensors")
    shutil.copytree(done, "run")
    for target in (Path("net.safetensors"), Path("run/state.9.safetensors")):
        before = target.read_bytes()
        assert main(["export", "net.safetensors", "--to", "torch", "-o", str(target), "--force"]) == 2
        assert "which an export would destroy; name another file" in capsys.readouterr().err
        assert target.read_bytes() == before
