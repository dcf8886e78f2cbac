"""The benches of ImageNet's nets, loader and ranks at toy size, and the cost model against sums by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meannet import cli
from meannet.bench import imagenet, loader, ranks, scale
from meannet.kept import pages

PROJECT = Path(__file__).resolve().parents[1]
MADE = {"date": "2026-01-01", "device": "a machine", "commit": "abc", "versions": {"torch": "2.11"}}


def row(net, batch, ms, who="meannet", how="fast"):
    return {"who": who, "net": net, "how": how, "batch": batch, "ms_per_update": ms, "spread": 0.1, "repeats": 7} | {
        "images_per_s": 1000 * batch / ms
    }


TRAINING = MADE | {
    "picture": 256,
    "rows": [
        row("H with dropout", 128, 10.0),
        row("H with dropout", 32, 4.0),
        row("H with dropout", 128, 50.0, "torch-eager", ""),
        row("H without dropout", 128, 8.0),
    ],
    "parameters": {"H with dropout": 75_000_000, "H without dropout": 1},
    "hours": {"H with dropout": 2.54},
    "epochs": 90,
    "cases": 1_300_000,
    "ten_views_ms": [{"how": "captured", "net": "H with dropout", "repeats": 35, "median": 0.8, "spread": 0.05}],
}
LOADER = MADE | {
    "cores": 16,
    "pictures": {"count": 240, "rows": 375, "columns": 500, "mean_bytes": 110_000},
    "prepare": {"images_per_s_a_core": 150.0, "spread": 3.0, "repeats": 5},
    "loader": [{"workers": n, "images_per_s": 1000.0 * n, "spread": 20.0, "repeats": 5} for n in (1, 2, 16)],
}


def ranks_row(n, apart, exchange, together):
    spreads = {"together_spread": 0.5, "apart_spread": 0.5, "exchange_spread": 0.1}
    return {"ranks": n, "repeats": 9, "apart_ms": apart, "exchange_ms": exchange, "together_ms": together} | spreads


RANKS = MADE | {
    "cores": 16,
    "batch_a_rank": 16,
    "gradient_bytes": 5_000_000,
    "rows": [ranks_row(1, 40, 0, 41), ranks_row(2, 42, 8, 46), ranks_row(4, 44, 12, 51), ranks_row(8, 50, 16, 58)],
}


def test_the_model_is_the_sum_of_its_measured_parts():
    cost = scale.Cost.measured(TRAINING, LOADER)
    assert (cost.fixed, cost.picture, cost.gradient_bytes, cost.core) == (2.0, 0.0625, 300_000_000, 1000)
    assert cost.loader == 16_000
    assert cost.exchange(1) == 0
    assert cost.exchange(2) == pytest.approx(1000 * 300e6 / 300e9)  # 2 (2 - 1) / 2 = 1 of the bytes
    assert cost.exchange(16) == pytest.approx(1000 * (2 * 7 / 8 * 300e6 / 300e9 + 2 / 2 * 300e6 / 8 / 40e9))
    low, high = cost.speeds(8, 16)  # 3 ms of work, 1.75 of exchange, of which 2 could hide
    assert low == pytest.approx(128_000 / 4.75) and high == pytest.approx(128_000 / 3)
    assert cost.speeds(1, 128) == pytest.approx((12_800, 12_800))
    slow = replace(cost, core=5_000.0 / scale.CORES)
    assert slow.speeds(4, 128) == (20_000, 20_000)


def test_ranks_are_predicted_from_two_of_them():
    found = scale.check(RANKS)
    # A ring of two sends all gradients once, one of four 1.5 times, one of eight 1.75 times; two ranks show 5 ms.
    assert [one.predicted for one in found] == [41, 46, 48.5, 49.75] and [one.fitted for one in found] == [1, 1, 0, 0]
    assert found[3].off == pytest.approx(49.75 / 58 - 1)
    alone = RANKS | {"rows": RANKS["rows"][:2]}
    assert "No more ranks were measured" in scale.blocks({"ranks": alone})["rank-check"]()


def test_the_page_is_filled_and_marks_predictions(tmp_path):
    for name, document in (("training", TRAINING), ("loader", LOADER), ("ranks", RANKS)):
        (tmp_path / "scale").mkdir(exist_ok=True)
        (tmp_path / "scale" / f"{name}.json").write_text(json.dumps(document))
    text = (PROJECT / "docs" / "scale.md").read_text(encoding="utf-8")
    page = pages.fill(text, tmp_path, PROJECT / "docs")
    assert scale.NONE_YET not in page and page.count("All rows are predictions") == 2
    assert "| meannet fast | H with dropout | 128 | 10.00 ± 0.10 | 12,800 |" in page
    assert "take 2.5 hours" in page and "Ten views of one picture, captured: 0.80 ± 0.05 ms" in page
    assert "| 16 | 16,000 ± 20 |" in page and "150 ± 3 pictures a second and core" in page
    assert "| 2 | 42.0 | 8.0 | 46.0 ± 0.5 | 46.0 | given |" in page
    assert "The model is within 20 %: it is off by 14 % at most, with 8 ranks." in page
    assert "A GPU with 128 pictures an update takes 12,800, for which 13 cores are needed." in page
    assert "| 64 | 2 |" in page and "| 64 | 128 |" in page
    single = scale.blocks({"training": TRAINING | {"rows": TRAINING["rows"][:1]}})
    assert (
        single["shared"]() == scale.ONE_SIZE
        and "| 2 | 128 | 1.00 | 23,273 to 25,600 | 91 to 100 % |" in single["each"]()
    )
    assert "10.00 ms for 128 pictures (measured)" in single["model"]() and "was not measured" in single["model"]()
    off = RANKS | {"rows": [*RANKS["rows"][:3], ranks_row(8, 50, 16, 100)]}
    assert "The model is not within 20 %" in scale.blocks({"ranks": off})["rank-check"]()
    assert pages.fill(page, tmp_path / "empty", PROJECT / "docs").count(scale.NONE_YET) == 5


def test_bench_imagenet_has_a_row_for_everyone_and_stops_when_its_time_is_over(capsys):
    assert cli.main(["bench", "--imagenet", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["net"], r["who"]) for r in found["rows"]] == [
        (n, w) for n in imagenet.NETS for w in ("meannet", "torch-eager")
    ]
    assert all(r["images_per_s"] == pytest.approx(8000 / r["ms_per_update"], rel=1e-3) for r in found["rows"])
    assert found["hours"] == {} and found["ten_views_ms"][0]["median"] > 0 and found["versions"]["torch"]
    import torch

    said = []
    late = imagenet.measure(torch.device("cpu"), said.append, limit=-1.0)
    assert late["rows"] == [] and all(line.startswith("not measured") for line in said)


def test_bench_loader_counts_pictures_prepared_and_read():
    found = loader.measure(lambda _: None, count=20, seconds=0.05, most=1)
    assert found["prepare"]["images_per_s_a_core"] > 0 and [r["workers"] for r in found["loader"]] == [1]
    assert found["loader"][0]["images_per_s"] > 0 and 60_000 < found["pictures"]["mean_bytes"] < 180_000


def test_bench_ranks_measures_ranks_together_apart_and_their_exchange():
    toy = replace(ranks.SMALL, patches=imagenet.TOY.patches, picture=40, width=16, batch=2, updates=1, repeats=2)
    found = ranks.measure(lambda _: None, worlds=(1, 2, 10_000), size=toy)
    assert [r["ranks"] for r in found["rows"]] == [1, 2]
    assert (
        all(r["together_ms"] > 0 and r["apart_ms"] > 0 for r in found["rows"]) and found["rows"][1]["exchange_ms"] > 0
    )
