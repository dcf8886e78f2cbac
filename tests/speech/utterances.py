"""Made-up utterances: labels, states, and what a net might say of them."""

import numpy as np
import torch

from meannet.speech import hmm, phones


def model_of_timit(seed=0, utterances=30):
    """An Hmm from made-up labels, each phone equally divided; the labels, states and segments too."""
    draw = np.random.default_rng(seed)
    silence = phones.NUMBER["h#"]
    labels, states, bounds = [], [], []
    for _ in range(utterances):
        row = [silence, *draw.integers(0, 61, 8).tolist(), silence]
        lengths = draw.integers(3, 9, len(row)) + 2
        stops = np.cumsum(lengths).tolist()
        labels.append(row)
        bounds.append([hmm.Segment(p, b - n, b) for p, b, n in zip(row, stops, lengths.tolist(), strict=True)])
        states.append(torch.cat([hmm.equally(p, n) for p, n in zip(row, lengths.tolist(), strict=True)]))
    return hmm.estimate(states, labels), labels, states, bounds


def padded(states, sure=3.0, seed=0):
    """Log probabilities that favour these states, and the lengths."""
    lengths = [len(row) for row in states]
    scores = torch.randn(len(states), max(lengths), 185, generator=torch.Generator().manual_seed(seed))
    for k, row in enumerate(states):
        scores[k, torch.arange(len(row)), row] += sure
    return scores.log_softmax(-1), lengths
