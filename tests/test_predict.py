"""`meannet predict` as a person meets it: whose answers it gives, in what form, and what it says to unfit files."""

import csv
import io
import json
import shutil
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from toys import finish, no_file_above, small, written

from meannet import DropoutClassifier, DropoutRegressor, data
from meannet.cli import main
from meannet.config import Arm, Claim, Data

DIGITS = data.load(Data(name="digits"), say=print)
INPUTS = DIGITS.test.inputs.numpy()
TABLE = np.random.RandomState(0).normal(size=(30, 3))
LABELS = np.array(["no", "yes, é", "'"])[np.arange(30) % 3]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs of `one` architecture, of `two`, and one, `chosen`, on held-out cases with an arm that diverged."""
    here = tmp_path_factory.mktemp("predict")
    one = small("digits", epochs=20, samples=0)
    two = replace(one, net=replace(one.net, hidden=((5,), (6,))), claims=(Claim(arm="dropout", value=1),))
    wild = Arm(name="wild", lr=1e30, limit=float("inf"))
    chosen = replace(one, data=Data(name="digits", held_out=True), arms=(one.arms[1], one.arms[0], wild))
    for name, toy, code in (("one", one, 0), ("two", two, 0), ("chosen", chosen, 3)):
        assert main(["run", str(written(toy, here / f"{name}.json")), "--out", str(here / name)]) == code
    return here


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """An empty folder, and no data: a run can be used where its data set is not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "data"))


@pytest.fixture
def answers(capsys):
    """Rows of the CSV that a command prints, and the line on stderr."""

    def ask(*arguments):
        capsys.readouterr()
        assert main(["predict", *map(str, arguments)]) == 0
        printed = capsys.readouterr()
        return list(csv.DictReader(io.StringIO(printed.out))), printed.err

    return ask


@pytest.fixture
def refused(capsys):
    """The line with which a request is answered that cannot be met."""

    def ask(*arguments, code=2):
        capsys.readouterr()
        assert main(["predict", *map(str, arguments)]) == code
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1 and printed.err.startswith("meannet: ")
        return printed.err.strip()

    return ask


def arm_of(folder, name, net="64-8-8-10"):
    found = json.loads((folder / "result.json").read_text())["arms"]
    return next(arm for arm in found if (arm["name"], arm["net"]) == (name, net))


def test_a_user_goes_from_a_run_to_answers_and_to_onnx_in_processes_of_their_own(tmp_path):
    written(small("digits", epochs=1, samples=0), Path("toy.json"))
    np.savetxt("x.csv", INPUTS[:3], delimiter=",")
    for command in ("run toy.json --out run", "predict run x.csv -o out.csv", "export run --to onnx -o net.onnx"):
        assert finish(*command.split(), cwd=tmp_path) == 0
    assert "wrote net.onnx: float32; in ONNX Runtime" in Path("stdout").read_text()
    session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    (labels,) = session.run(["label"], {"inputs": INPUTS[:3]})
    assert [row["label"] for row in csv.DictReader(Path("out.csv").read_text().splitlines())] == list(labels)


@pytest.mark.parametrize("seed", [0, 1])
def test_predictions_make_the_errors_that_the_result_counts(done, answers, seed):
    np.save("x.npy", INPUTS)
    rows, told = answers(done / "one", "x.npy", "--arm", "dropout", "--seed", seed)
    wrong = sum(row["label"] != str(target) for row, target in zip(rows, DIGITS.test.targets.tolist(), strict=True))
    assert wrong == arm_of(done / "one", "dropout")["errors"][seed]
    assert told == f"mean network of 64-8-8-10, arm dropout, seed {seed} ({wrong} errors of 1,000 test cases)\n"
    assert all(abs(sum(float(row[f"p_{k}"]) for k in range(10)) - 1) < 1e-4 for row in rows)
    assert [row["case"] for row in rows] == [str(case) for case in range(1000)]


def test_all_seeds_are_averaged(done, answers):
    np.save("x.npy", INPUTS[:9])
    each = [answers(done / "one", "x.npy", "--seed", seed)[0] for seed in (0, 1, "all")]
    p = np.array([[[float(row[f"p_{k}"]) for k in range(10)] for row in rows] for rows in each])
    np.testing.assert_allclose(p[2], (p[0] + p[1]) / 2, rtol=1e-4)


def test_what_is_not_asked_for_is_chosen_without_test_cases_and_said(done, answers, refused):
    np.save("x.npy", INPUTS[:2])
    assert "arm dropout+input, seed 0" in (told := answers(done / "one", "x.npy")[1]) and "the last arm" in told
    assert "64-6-10, arm dropout, seed 0" in (told := answers(done / "two", "x.npy", "--net", "64-6-10")[1])
    assert "the arm of the paper's claim" in told
    fewest = min((arm_of(done / "chosen", name)["mean"], name) for name in ("dropout", "backprop"))[1]
    assert (
        f"arm {fewest}, seed 0" in (told := answers(done / "chosen", "x.npy")[1]) and "fewest held-out errors" in told
    )
    assert "choose one with --net: 64-5-10, 64-6-10" in refused(done / "two", "x.npy")
    assert "every such net" in refused(done / "chosen", "x.npy", "--arm", "wild", code=1)


def test_csv_npy_and_pictures_of_the_same_cases_get_the_same_answers(done, answers):
    pixels = np.rint(INPUTS[:4] * 255).astype(np.uint8)
    np.save("x.npy", pixels / 255)
    np.save("pictures.npy", pixels.reshape(-1, 8, 8))
    lines = [",".join(map(repr, (row / 255).tolist())) for row in pixels]
    Path("plain.csv").write_text("\n".join(lines) + "\n")
    Path("named.csv").write_text("\ufeff" + ",".join(f'"pixel, {k}"' for k in range(64)) + "\r\n" + "\r\n".join(lines))
    Path("pandas.csv").write_text("\n".join([",".join(map(str, range(64))), *lines]))
    Path("pictures").mkdir()
    (Path("pictures") / "notes.txt").write_text("seven, two")
    for case, row in enumerate(pixels.reshape(-1, 8, 8)):
        image = Image.fromarray(row)
        changed = [image, image.convert("RGB"), image.convert("LA"), Image.fromarray(row.astype(np.uint16) * 257)]
        changed[case].save(f"pictures/{case}.png")
    expected = answers(done / "one", "x.npy")[0]
    for file in ("plain.csv", "named.csv", "pandas.csv"):
        assert answers(done / "one", file)[0] == expected
    assert answers(done / "one", "pictures.npy", "--divide", 255)[0] == expected
    rows, told = answers(done / "one", "pictures")
    assert "left out, being no pictures: notes.txt" in told
    assert rows == [row | {"case": f"{case}.png"} for case, row in enumerate(expected)]
    assert answers(done / "one", "pictures/2.png", "pictures/0.png")[0] == [rows[2], rows[0]]


ESTIMATORS = {
    "single": (DropoutClassifier, LABELS, ["label", "p_no", "p_yes, é", "p_'"]),
    "several": (
        DropoutClassifier,
        np.stack((LABELS, np.array(["a", "b"])[np.arange(30) % 2]), 1).astype(object),
        ["label_0", "label_1", "p_0_'", "p_0_no", "p_0_yes, é", "p_1_a", "p_1_b"],
    ),
    "multi-label": (DropoutClassifier, TABLE[:, :2] > 0, ["label_0", "label_1", "p_0", "p_1"]),
    "regression": (DropoutRegressor, TABLE[:, 0], ["prediction"]),
    "regressions": (DropoutRegressor, TABLE[:, :2], ["prediction_0", "prediction_1"]),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_saved_estimator_answers_as_it_does_in_python(kind, answers, capsys):
    make, y, columns = ESTIMATORS[kind]
    fitted = make(hidden=(5,), epochs=3, random_state=0, n_nets=2).fit(TABLE, y.astype(int) if y.dtype == bool else y)
    fitted.save("net.safetensors")
    np.save("x.npy", TABLE)
    rows, told = answers("net.safetensors", "x.npy")
    assert set(rows[0]) == {"case", *columns} and told.endswith("in net.safetensors, 2 nets averaged\n")
    predicted = fitted.predict(TABLE).reshape(30, -1)
    for k, name in enumerate(column for column in columns if not column.startswith("p_")):
        assert [row[name] for row in rows] == [str(value) for value in predicted[:, k].tolist()]
    assert main(["predict", "net.safetensors", "x.npy", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    key = {"single": "label", "several": "labels", "multi-label": "labels"}.get(kind, "prediction")
    assert [case[key] for case in document["cases"]] == fitted.predict(TABLE).tolist()
    if key != "prediction":
        expected = fitted.predict_proba(TABLE)
        for case, one in enumerate(document["cases"]):
            own = [part[case].tolist() for part in expected] if kind == "several" else expected[case].tolist()
            assert one["probabilities"] == own
    assert document["classes"] == (None if key == "prediction" else json.loads(json.dumps(_classes(fitted))))


def _classes(fitted):
    return [c.tolist() for c in fitted.classes_] if isinstance(fitted.classes_, list) else fitted.classes_.tolist()


def test_answers_go_to_a_file_that_is_new_or_may_be_replaced(done, capsys, refused):
    np.save("x.npy", INPUTS[:3])
    assert main(["predict", str(done / "one"), "x.npy"]) == 0
    printed = capsys.readouterr().out
    assert main(["predict", str(done / "one"), "x.npy", "-o", "out.csv"]) == 0
    assert capsys.readouterr().out == "wrote out.csv: 3 cases\n" and Path("out.csv").read_text() == printed
    Path("out.csv").write_text("mine")
    assert "out.csv is there already" in refused(done / "one", "x.npy", "-o", "out.csv")
    with no_file_above(100):
        assert "File too large: out.csv" in refused(done / "one", "x.npy", "-o", "out.csv", "--force", code=1)
    assert Path("out.csv").read_text() == "mine" and sorted(p.name for p in Path().iterdir()) == ["out.csv", "x.npy"]
    assert main(["predict", str(done / "one"), "x.npy", "-o", "out.csv", "--force"]) == 0
    assert Path("out.csv").read_text() == printed
    assert main(["predict", str(done / "one"), "x.npy", "-o", "out.json"]) == 0
    assert len(json.loads(Path("out.json").read_text())["cases"]) == 3


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        ("--arm dropuot", "the run has no arm 'dropuot'; did you mean dropout?"),
        ("--net 64-8-10", "the run has no net '64-8-10'; did you mean 64-8-8-10?"),
        ("--seed 7", "seed 7 of arm dropout+input is not in the run; there is 0, 1"),
        ("--divide -1", "--divide must be above 0"),
        ("--json -o a.json", "--json is for stdout"),
        ("-o a.txt", "a.txt must end in .csv or .json"),
        ("-o no/a.csv", "there is no folder no"),
        ("x.npy", "x.npy is one of 2 files; give one table at a time"),
    ],
)
def test_wrong_flags_get_one_line(done, refused, flags, answer):
    np.save("x.npy", INPUTS[:3])
    assert answer in refused(done / "one", "x.npy", *flags.split())


def row_of(**changes):
    """A line of 64 cells, some of them changed by number."""
    return ",".join(changes.get(f"c{k}", "0.5") for k in range(64))


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("", "holds no cases"),
        (row_of() + "\n\n", None),
        ("0.5,0.5\n", "line 1: 2 columns; the net takes 64 inputs, 8 x 8 pixels"),
        (row_of().replace(",", ";"), "cells are separated by commas"),
        (row_of() + "\n" + row_of() + ",1\n", "line 2: 65 columns"),
        (row_of() + "\n" + row_of(c2="abc"), "line 2, column 3: 'abc' is not a finite number"),
        (row_of() + "\n" + row_of(c2=""), "line 2, column 3: '' is not a finite number"),
        (row_of() + "\n" + row_of(c0="nan"), "line 2, column 1: 'nan' is not a finite number"),
        (row_of(c2="") + "\n" + row_of(), "line 1, column 3: '' is not a finite number"),
        (row_of(c63="x") + "\n" + row_of(), "line 1, column 64: 'x' is not a finite number"),
        ("," * 63 + "\n" + row_of(), "line 1, column 1: '' is not a finite number"),
        (row_of(c5="17"), "pixels must be from 0 to 1, and these are from 0.5 to 17; --divide says what white is"),
        (row_of(c5="-0.1"), "these are from -0.1 to 0.5"),
        (b"\xff\xfe0\x00", "not a .csv file in UTF-8"),
        ('"0.5', "not a .csv file"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_place(done, refused, answers, content, answer):
    Path("x.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    if answer is None:
        assert len(answers(done / "one", "x.csv")[0]) == 1
    else:
        assert answer in refused(done / "one", "x.csv")


@pytest.mark.parametrize(
    ("array", "answer"),
    [
        (np.zeros((2, 63)), "has shape (2, 63); the net takes (cases, 64) or (cases, 8, 8)"),
        (np.zeros((64,)), "has shape (64,)"),
        (np.zeros((2, 4, 16)), "has shape (2, 4, 16)"),
        (np.zeros((0, 64)), "holds no cases"),
        (np.full((2, 64), np.nan), "[0, 0] is nan, and so are 127 more"),
        (np.full((2, 64), "a"), "holds <U1, not numbers"),
        (np.zeros((2, 64), complex), "holds complex128, not numbers"),
        (np.full((2, 64), None), "not a whole .npy file of numbers"),
        (np.full((2, 64), 255, np.uint8), "--divide 255"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(done, refused, array, answer):
    np.save("x.npy", array, allow_pickle=True)
    assert answer in refused(done / "one", "x.npy")


def test_a_damaged_array_is_refused_before_memory_is_asked_for(done, refused):
    np.save("x.npy", np.zeros((3, 64)))
    whole = Path("x.npy").read_bytes()
    huge = whole.replace(b"(3, 64), }          ", b"(3999999999, 64), } ")
    assert len(huge) == len(whole) and huge != whole
    broken = [whole.replace(b"(3, 64)", shape) for shape in (b"(3, 64 ", b"(3,6.4)", b"(9**99)", b"(-3,64)")]
    for content in (b"", b"PK\x03\x04", whole[:90], whole[:-1], huge, *broken):
        Path("x.npy").write_bytes(content)
        assert "x.npy is not a whole .npy file of numbers" in refused(done / "one", "x.npy")


def test_pictures_are_never_repaired(done, refused):
    grey = Image.new("L", (8, 8), 100)
    Image.new("L", (28, 28)).save("large.png")
    Image.new("RGB", (8, 8), (9, 9, 8)).save("colour.png")
    Image.new("LA", (8, 8), (9, 254)).save("clear.png")
    Image.new("CMYK", (8, 8)).save("print.jpg")
    grey.save("moving.gif", save_all=True, append_images=[Image.new("L", (8, 8), 200)])
    grey.save("grey.png")
    Path("cut.png").write_bytes(Path("grey.png").read_bytes()[:50])
    Path("text.png").write_text("a seven")
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)  # 3.6 gigapixels, none of which are there
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    Path("bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk)
    for name, answer in {
        "large.png": "has 28 x 28 pixels, and the net takes 8 x 8; cut and resize it first",
        "colour.png": "is in colour",
        "clear.png": "is transparent in places",
        "print.jpg": "has pixels of the kind CMYK",
        "moving.gif": "holds several pictures",
        "cut.png": "cannot be read as a picture",
        "text.png": "cannot be read as a picture",
        "bomb.png": "cannot be read as a picture",
        "nosuch.png": "there is no file nosuch.png",
    }.items():
        assert (line := refused(done / "one", name)).startswith(f"meannet: {name} ") or "there is no file" in line
        assert answer in line
    Path("empty").mkdir()
    assert "empty holds no pictures" in refused(done / "one", "empty")


def test_columns_that_have_names_must_have_the_estimators(answers, refused):
    fitted = DropoutClassifier(hidden=(5,), epochs=1).fit(TABLE, LABELS)
    fitted.feature_names_in_ = np.array(["width", "height", "age"], dtype=object)
    fitted.save("net.safetensors")
    Path("good.csv").write_text("width,height,age\n1,2,3\n")
    Path("swapped.csv").write_text("height,width,age\n1,2,3\n")
    assert len(answers("net.safetensors", "good.csv")[0]) == 1
    line = refused("net.safetensors", "swapped.csv")
    assert "swapped.csv: column 1 is 'height', but the net was fitted with 'width' there" in line


def test_what_is_neither_a_finished_run_nor_an_estimator_is_refused(done, refused):
    np.save("x.npy", INPUTS[:3])
    shutil.copytree(done / "one", "run")
    state = Path("run/state.safetensors").read_bytes()
    assert "there is no nosuch" in refused("nosuch", "x.npy")
    assert ". is not a run folder" in refused(".", "x.npy")
    assert "x.npy is not an estimator that was saved" in refused("x.npy", "x.npy")
    assert "a run is named by its folder" in refused("run/state.safetensors", "x.npy")
    Path("run/state.safetensors").write_bytes(state[:-1] + b"?")
    assert "run: state.safetensors is damaged" in (line := refused("run", "x.npy", code=1))
    previous = Path("run/state.previous.safetensors")
    assert previous.exists() and "move run/result.json elsewhere, and `meannet run --resume run` makes it anew" in line
    previous.write_bytes(b"")
    assert "its nets are lost, and run/result.json still tells what they did" in refused("run", "x.npy", code=1)
    DropoutClassifier(hidden=(5,), epochs=1).fit(TABLE, LABELS).save("run/state.safetensors")
    line = refused("run", "x.npy", code=1)
    assert "state.safetensors holds DropoutClassifier, not the state of a run" in line
    Path("run/state.safetensors").write_bytes(state)
    Path("run/result.json").write_text('{"arms": [{}]}')
    assert "run/result.json is broken" in refused("run", "x.npy")
    Path("run/result.json").unlink()
    assert "the run has not finished; `meannet run --resume run`" in refused("run", "x.npy")
    DropoutClassifier(hidden=(5,), epochs=1).fit(TABLE, LABELS).save("net.safetensors")
    assert "--arm is for run folders; drop it" in refused("net.safetensors", "x.npy", "--arm", "dropout")
    Image.new("L", (8, 8)).save("a.png")
    assert "a.png is a picture; this net takes tables of 3 columns" in refused("net.safetensors", "a.png")


def test_many_cases_are_worked_on_in_blocks(done, answers, monkeypatch):
    np.save("x.npy", INPUTS)
    whole = answers(done / "one", "x.npy")[0]
    monkeypatch.setattr("meannet.estimators.cases.CHUNK_FLOATS", 64 * 7)
    assert answers(done / "one", "x.npy")[0] == whole
