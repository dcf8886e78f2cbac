"""Filter banks against Kaldi's own code and against a numpy loop; differences and windows against loops."""

import numpy as np
import pytest
import torch

from meannet.data import corpus
from meannet.nn.windows import Windows, padded
from meannet.speech import audio, fbank


def noise(*lengths, seed=0):
    draw = np.random.default_rng(seed)
    return [torch.from_numpy((800 * draw.normal(size=n)).astype(np.int16)) for n in lengths]


def kaldi(samples, rate=16_000, bins=40):
    knf = pytest.importorskip("kaldi_native_fbank")
    options = knf.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.samp_freq = rate
    options.mel_opts.num_bins = bins
    made = knf.OnlineFbank(options)
    made.accept_waveform(rate, samples.astype(np.float32))
    made.input_finished()
    return np.stack([made.get_frame(k) for k in range(made.num_frames_ready)])


@pytest.mark.parametrize(("rate", "bins"), [(16_000, 40), (8_000, 23), (44_100, 30)])
def test_filter_banks_are_kaldis_at_other_rates_too(rate, bins):
    waves = noise(rate // 2, rate // 40, rate // 3 + 7)
    found, counts = fbank.filter_banks(waves, rate, bins)
    for mine, wave in zip(found.split(counts), waves, strict=True):
        np.testing.assert_allclose(mine, kaldi(wave.numpy(), rate, bins), atol=2e-3)


def test_filter_banks_are_kaldis_on_every_file_of_the_sample(real_data):
    if not (real_data / "timit-sample").is_dir():
        pytest.skip("no timit-sample among the real data")
    sounds = [audio.read(one.audio) for one in corpus.find(real_data / "timit-sample")]
    assert len(sounds) == 160
    found, counts = fbank.filter_banks([torch.from_numpy(sound.samples) for sound in sounds])
    for mine, sound in zip(found.split(counts), sounds, strict=True):
        theirs = kaldi(sound.samples)
        assert mine.shape == theirs.shape
        difference = np.abs(mine.numpy() - theirs)
        assert difference.max() < 5e-3 and np.median(difference) < 1e-4


def test_filter_banks_are_what_the_definition_says_frame_by_frame():
    """The definition in float64, a frame and a filter at a time."""
    (wave,) = noise(16_000 // 5)
    found, (count,) = fbank.filter_banks([wave])
    assert count == 1 + (len(wave) - 400) // 160
    mel = lambda hertz: 1127 * np.log(1 + hertz / 700)  # noqa: E731
    edges = np.linspace(mel(20), mel(8000), 42)
    for k in (0, 7, count - 1):
        frame = wave.numpy()[160 * k : 160 * k + 400].astype(float)
        frame -= frame.mean()
        frame = np.concatenate(([0.03 * frame[0]], frame[1:] - 0.97 * frame[:-1]))
        frame *= (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
        power = np.abs(np.fft.rfft(frame, 512)) ** 2
        for b in range(40):
            at = mel(np.arange(256) * 31.25)
            rising, falling = (
                (at - edges[b]) / (edges[b + 1] - edges[b]),
                (edges[b + 2] - at) / (edges[b + 2] - edges[b + 1]),
            )
            energy = (np.clip(np.minimum(rising, falling), 0, None) * power[:256]).sum()
            assert found[k, b] == pytest.approx(np.log(energy), abs=1e-4)


def test_many_recordings_at_once_are_those_one_by_one_whatever_the_chunks(monkeypatch):
    waves = noise(5000, 399, 400, 12_345, 801)
    every, counts = fbank.filter_banks(waves)
    assert counts == [29, 0, 1, 75, 3]
    alone = torch.cat([fbank.filter_banks([wave])[0] for wave in waves])
    torch.testing.assert_close(every, alone, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(fbank, "FRAMES_AT_A_TIME", 10)
    torch.testing.assert_close(fbank.filter_banks(waves)[0], alone, rtol=1e-5, atol=1e-5)


def test_silence_is_floored_and_not_minus_infinity():
    found, _ = fbank.filter_banks([torch.zeros(1000, dtype=torch.int16)])
    assert (found == np.log(np.finfo(np.float32).eps)).all()


def test_differences_are_those_of_add_deltas():
    """Kaldi's loop: each order is a filter on the frames, made from the one of the order before; edges are repeated."""
    counts = [7, 1, 12]
    frames = torch.randn(sum(counts), 5, generator=torch.Generator().manual_seed(1))
    scales = [np.ones(1)]
    for _ in range(2):
        longer = np.zeros(len(scales[-1]) + 4)
        for j in range(-2, 3):
            longer[j + 2 : j + 2 + len(scales[-1])] += j * scales[-1]
        scales.append(longer / 10)
    expected = []
    for part in frames.split(counts):
        rows = part.numpy()
        for t in range(len(rows)):
            row = []
            for scale in scales:
                half = len(scale) // 2
                at = np.clip(t + np.arange(-half, half + 1), 0, len(rows) - 1)
                row.append(scale @ rows[at])
            expected.append(np.concatenate(row))
    found = fbank.with_deltas(frames, counts)
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=1e-5)
    assert fbank.with_deltas(frames, counts, 0) is frames


@pytest.mark.parametrize("width", [1, 3, 15])
def test_windows_are_frames_side_by_side_with_edges_repeated(width):
    counts = [4, 1, 9, 20]
    frames = torch.randn(sum(counts), 3, generator=torch.Generator().manual_seed(2))
    table, starts = padded(frames, counts, width)
    windows = Windows(table, starts, width)
    half = width // 2
    expected = [
        part[[min(max(t + j, 0), len(part) - 1) for j in range(-half, half + 1)]].reshape(-1)
        for part in frames.split(counts)
        for t in range(len(part))
    ]
    expected = torch.stack(expected)
    assert windows.shape == expected.shape and windows[torch.arange(len(windows))].equal(expected)
    chosen = torch.tensor([[3, 0, 33], [5, 5, 1]])
    assert windows[chosen].equal(expected[chosen]) and windows.first(6)[torch.arange(6)].equal(expected[:6])


def test_windows_take_the_memory_of_their_frames():
    table, starts = padded(torch.zeros(1000, 120), [600, 400], 21)
    windows = Windows(table, starts, 21)
    assert windows.every.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()
    assert table.untyped_storage().nbytes() == 4 * 120 * (1000 + 2 * 20)
    with pytest.raises(ValueError, match="odd number of frames"):
        padded(torch.zeros(10, 2), [10], 4)
