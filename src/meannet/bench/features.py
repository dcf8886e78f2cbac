"""Filter banks a second beside kaldi-native-fbank, on the sample of TIMIT or on noise of its size, in one run.

The peer takes one recording after another on one thread, and hands out frames one by one, which is timed apart. It is
left out where it is not installed.
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from meannet import data
from meannet.bench.comparison import spread
from meannet.bench.images import timed
from meannet.data import corpus
from meannet.speech import audio, fbank

RATE = 16_000
REPEATS = 9
NOISE = (160, 3.1)  # recordings, seconds of each
PEER = "kaldi-native-fbank"


def measure(where: torch.device, say: Callable[[str], None], *, repeats: int = REPEATS) -> dict[str, Any]:
    """A row for each who takes part, all timed in turns; the first round does not count."""
    sounds, name = recordings()
    frames = sum(fbank.frame_count(len(sound), RATE) for sound in sounds)
    runs = taking_part(sounds, where)
    say(f"filter banks of {name}: {len(sounds)} recordings, {frames:,} frames")
    if not any(who.startswith(PEER) for who in runs):
        say(f"left out: {PEER} is not installed")
    seconds: dict[str, list[float]] = {who: [] for who in runs}
    for turn in range(repeats + 1):
        for who, (_, run) in runs.items():
            spent = timed(run, where)
            if turn:
                seconds[who].append(spent)
    rows = []
    for who, (threads, _) in runs.items():
        speeds = [frames / one for one in seconds[who]]
        rows.append(
            {
                "who": who,
                "threads": threads,
                "frames_per_s": round(statistics.median(speeds)),
                "spread": round(spread(speeds)),
                "repeats": len(speeds),
            }
        )
    return {"data": name, "frames": frames, "rows": rows}


def recordings() -> tuple[list[np.ndarray], str]:
    """Samples of each, and what they are."""
    folder = data.folder() / "timit-sample"
    if folder.is_dir():
        return [audio.read(one.audio).samples for one in corpus.find(folder)], "timit-sample"
    draw = np.random.default_rng(0)
    count, length = NOISE
    return [draw.normal(0, 1000, int(length * RATE)).astype(np.int16) for _ in range(count)], "noise"


def taking_part(sounds: list[np.ndarray], where: torch.device) -> dict[str, tuple[int, Callable[[], Any]]]:
    """By name: threads, and what is timed."""
    threads = torch.get_num_threads()
    waves = [torch.from_numpy(sound).to(where) for sound in sounds]
    kind = "" if where.type == "cpu" else f" on the {where.type}"

    def on(count: int) -> Callable[[], Any]:
        def run() -> None:
            torch.set_num_threads(count)
            fbank.filter_banks(waves, RATE)
            torch.set_num_threads(threads)

        return run

    runs: dict[str, tuple[int, Callable[[], Any]]] = {f"meannet{kind}": (1, on(1))}
    if threads > 1 and where.type == "cpu":
        runs[f"meannet, {threads} threads"] = (threads, on(threads))
    try:
        import kaldi_native_fbank as kaldi
    except ImportError:
        return runs
    floats = [sound.astype(np.float32) for sound in sounds]
    options = kaldi.FbankOptions()
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = fbank.BINS

    def computed() -> list[Any]:
        made = []
        for wave in floats:
            made.append(kaldi.OnlineFbank(options))
            made[-1].accept_waveform(RATE, wave)  # pyrefly: ignore, its stubs say list
            made[-1].input_finished()
        return made

    def handed_out() -> list[np.ndarray]:
        return [np.stack([one.get_frame(k) for k in range(one.num_frames_ready)]) for one in computed()]

    return runs | {f"{PEER}, computed": (1, computed), f"{PEER}, with frames handed out": (1, handed_out)}
