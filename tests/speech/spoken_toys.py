"""Recordings in which every phone is a chord of its own, with labels: a net learns them within seconds."""

import wave

import numpy as np

from meannet.config import Arm, Data, Dropout, Experiment, Net, Optim, Speech

RATE = 16_000
CHORDS = {"h#": (), "aa": (700, 1200), "iy": (300, 2300), "s": (4500, 6000), "m": (250, 1000), "q": (3000,)}


def write_wav(path, samples, rate=RATE, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat(samples, channels).astype("<i2").tobytes())


def sung(sequence, draw):
    """Samples, and first and last sample of each phone."""
    parts, lines, at = [], [], 0
    for phone in sequence:
        length = int(draw.integers(1200, 2400))
        time = np.arange(length) / RATE
        tones = sum(np.sin(2 * np.pi * f * time) for f in CHORDS[phone]) if CHORDS[phone] else 0 * time
        parts.append(3000 * tones + 20 * draw.normal(size=length))
        lines.append(f"{at} {at + length} {phone}")
        at += length
    return np.concatenate(parts), lines


def write_corpus(folder, speakers=5, recordings=3, seed=0):
    draw = np.random.default_rng(seed)
    inner = [phone for phone in CHORDS if phone != "h#"]
    for speaker in range(speakers):
        (folder / f"spk{speaker}").mkdir(parents=True)
        for number in range(recordings):
            sequence = ["h#", *draw.choice(inner, 8), "h#"]
            samples, lines = sung(sequence, draw)
            write_wav(folder / f"spk{speaker}" / f"r{number}.wav", samples)
            (folder / f"spk{speaker}" / f"r{number}.phn").write_text("\n".join(lines) + "\n")
    return folder


def toy(folder, **changes):
    """Two arms, two turns of speakers."""
    speech = Speech(folder=str(folder), frames=3, bins=23, deltas=0, folds=2, dev=1)
    settings = {
        "recipe": "toy",
        "paper": "",
        "about": "chords",
        "data": Data(name="recordings", speech=speech),
        "net": Net(hidden=((32,),), units="rectified", initial_sd=0.1),
        "dropout": Dropout(hidden=0.2, visible=0.1),
        "optim": Optim(epochs=15, lr=0.3, decay=1.0, momentum_start=0.5, momentum_end=0.9, momentum_epochs=5, batch=50),
        "arms": (Arm(name="backprop"), Arm(name="dropout", hidden=True)),
        "seeds": (0, 1),
        "samples": 0,
    }
    return Experiment(**settings | changes)
