"""Real-time factors: every piece of work is done and counted against the speech that it was given."""

import time

import torch

from meannet.bench import decoding, features


def test_factors_are_of_the_decoder_and_of_everything_and_one_is_the_inverse_of_the_other(monkeypatch):
    monkeypatch.setattr(decoding, "UTTERANCES", 16)
    monkeypatch.setattr(decoding, "RECORDED", 0.5)
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))  # every timing takes one second
    said = []
    rows = decoding.measure(torch.device("cpu"), said.append, repeats=2, hidden=(8,))
    assert [row["what"].partition(",")[0] for row in rows] == ["decoder", "decoder", "features"] and len(said) == 3
    whole = rows[2]
    assert whole["real_time_factor"] == 2.0 and whole["times_faster"] == 0.5 and whole["spread"] == 0.0
    assert rows[1]["real_time_factor"] < rows[0]["real_time_factor"]  # a second for more speech


def test_frames_a_second_are_of_all_frames_and_of_everyone_who_is_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("MEANNET_DATA", str(tmp_path))
    monkeypatch.setattr(features, "NOISE", (3, 0.5))
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    found = features.measure(torch.device("cpu"), lambda line: None, repeats=2)
    assert found["data"] == "noise" and found["frames"] == 3 * 48
    assert all(row["frames_per_s"] == 3 * 48 and row["repeats"] == 2 for row in found["rows"])
    assert found["rows"][0]["who"] == "meannet"
