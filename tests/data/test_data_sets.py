import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from meannet import config, data


def test_listing_the_data_sets_loads_neither_torch_nor_scikit_learn():
    code = "import sys; from meannet import data; data.status(); print({'torch', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_list_says_what_is_there(toy):
    rows = {row.name: row for row in data.status()}
    assert set(rows) == set(data.NAMES)
    assert rows["digits"].present and rows["digits"].size > 0 and rows["digits"].where.is_file()
    assert not rows["mnist"].present and rows["mnist"].size == 0
    assert rows["mnist"].where == data.folder() / "mnist"


def test_an_unknown_data_set_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="no data set 'minst'; did you mean mnist"):
        data.load(config.Data(name="minst"), say=pytest.fail)
    with pytest.raises(ValueError, match="did you mean digits"):
        data.check("digit")


def test_the_folder_is_the_one_named_or_else_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path / "here"))
    assert data.folder() == tmp_path / "here"
    monkeypatch.setenv("MEANNET_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data.folder() == tmp_path / "cache" / "meannet"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.folder() == tmp_path / ".cache" / "meannet"
    monkeypatch.setenv("MEANNET_DATA", "~/mine")
    assert data.folder() == tmp_path / "mine"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEANNET_DATA", "relative")
    assert data.folder() == Path(tmp_path, "relative")


def test_the_digest_is_of_types_shapes_and_values():
    train = data.Cases(torch.tensor([[0.0, 1.0], [0.5, 0.25]]), torch.tensor([1, 0]))
    test = data.Cases(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    expected = hashlib.sha256()
    for array in (train.inputs, train.targets, test.inputs, test.targets):
        expected.update(f"{array.dtype}{tuple(array.shape)}".encode() + array.numpy().tobytes())
    assert data.digest(train, test) == expected.hexdigest()
    others = [
        data.Cases(torch.tensor([[1.0, 1e-7]]), torch.tensor([1])),
        data.Cases(torch.tensor([[1.0, 0.0]]), torch.tensor([0])),
        data.Cases(torch.tensor([[1.0], [0.0]]), torch.tensor([1])),
        data.Cases(torch.tensor([[1.0, 0.0]]).double(), torch.tensor([1])),
    ]
    assert len({data.digest(train, other) for other in [test, *others]}) == 5
    assert data.digest(train, data.Cases(test.inputs.T.contiguous().T, test.targets)) == expected.hexdigest()
