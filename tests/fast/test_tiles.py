"""The tool that times other tiles, as far as it goes without a GPU."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: there are no tiles to time")

from meannet.bench import tiles
from meannet.fast import cuda


def test_another_setting_holds_while_it_is_tried_and_no_longer():
    before = cuda.HIDDEN_STEP
    with pytest.raises(KeyError), tiles.instead("HIDDEN_STEP", (64, 32, 128, 4, 2, 96)):
        assert (cuda.HIDDEN_STEP.columns, cuda.HIDDEN_STEP.registers) == (32, 96)
        raise KeyError
    assert before == cuda.HIDDEN_STEP


def test_only_settings_that_there_are_get_tried_and_none_as_it_is():
    for tried in tiles.TRIED.values():
        for name, values in tried.items():
            assert getattr(cuda, name) not in [cuda.Tile(*v) if isinstance(v, tuple) else v for v in values]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line(capsys):
    assert tiles.main([]) == 1
    assert capsys.readouterr().err == "meannet.bench.tiles: needs a CUDA device and Triton\n"
    with pytest.raises(SystemExit):
        tiles.main(["--repeats", "0"])
    assert "--repeats must be 1 or more, not 0" in capsys.readouterr().err
