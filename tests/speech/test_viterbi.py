"""Decoding and alignment, against enumeration of every path and scores added up one by one."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from utterances import model_of_timit, padded

from meannet.speech import decoding, hmm, phones, viterbi


def made_up(states_of, seed):
    """Log probabilities of a model with these phones, in float64, and a generator to go on with."""
    draw = np.random.default_rng(seed)
    n, n_states = len(states_of), sum(states_of)
    stay = np.log(draw.uniform(0.1, 0.9, n_states))
    rows = np.log(draw.dirichlet(np.ones(n + 1), n + 1))
    return {"stay": stay, "start": rows[-1, :-1], "follow": rows[:-1, :-1], "end": rows[:-1, -1]}, draw


def steps(states_of, model):
    """For every state: the states it can come from, with the log probability and whether a phone begins."""
    last = np.cumsum(states_of) - 1
    first = last - np.array(states_of) + 1
    leave = np.log1p(-np.exp(model["stay"]))
    found = {}
    for phone, (a, b) in enumerate(zip(first, last, strict=True)):
        for state in range(a, b + 1):
            found[state] = [(state, model["stay"][state], False)]
            if state > a:
                found[state].append((state - 1, leave[state - 1], False))
        for other in range(len(states_of)):
            found[a].append((last[other], leave[last[other]] + model["follow"][other, phone], True))
    starts = {int(a): model["start"][phone] for phone, a in enumerate(first)}
    ends = {int(b): leave[b] + model["end"][phone] for phone, b in enumerate(last)}
    return found, starts, ends


def every_path(emissions, states_of, model):
    """Yields (score, states, begins) of all paths."""
    found, starts, ends = steps(states_of, model)

    def grown(frame, path, begins, score):
        if frame == len(emissions):
            if path[-1] in ends:
                yield score + ends[path[-1]], path, begins
            return
        for state, options in found.items():
            for before, cost, begin in options:
                if before == path[-1]:
                    whole = score + cost + emissions[frame, state]
                    yield from grown(frame + 1, [*path, state], [*begins, begin], whole)

    for state, cost in starts.items():
        yield from grown(1, [state], [True], cost + emissions[0, state])


def score_of(emissions, states, begins, states_of, model):
    """The score of a path, step by step."""
    found, starts, ends = steps(states_of, model)
    score = starts[states[0]] + emissions[0, states[0]]
    for frame, ((before, state), begin) in enumerate(zip(itertools.pairwise(states), begins[1:], strict=True), 1):
        (cost,) = [cost for origin, cost, new in found[state] if (origin, new) == (before, begin)]
        score += cost + emissions[frame, state]
    return score + ends[states[-1]]


def graph_of(states_of, model):
    return viterbi.one_graph(states_of, **{name: torch.from_numpy(part) for name, part in model.items()})


@pytest.mark.parametrize("states_of", [(1, 2), (3,), (2, 1, 1)])
def test_best_paths_are_the_best_of_all_paths(states_of):
    lengths = [5, 3, 4, 5]
    for seed in range(5):
        model, draw = made_up(states_of, seed)
        emissions = draw.normal(size=(4, 5, sum(states_of)))
        paths = viterbi.best_paths(torch.from_numpy(emissions), lengths, graph_of(states_of, model))
        for utterance, length in enumerate(lengths):
            score, states, begins = max(every_path(emissions[utterance, :length], states_of, model), key=lambda p: p[0])
            assert paths.scores[utterance].item() == pytest.approx(score, rel=1e-12)
            assert paths.states[utterance].tolist() == states + [-1] * (5 - length)
            assert paths.begins[utterance].tolist() == begins + [False] * (5 - length)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.integers(5, 30), min_size=1, max_size=5),
    st.integers(0, 2**32),
)
def test_a_path_has_the_score_that_is_reported_and_no_changed_path_a_better_one(states_of, lengths, seed):
    model, draw = made_up(states_of, seed)
    emissions = 3 * draw.normal(size=(len(lengths), max(lengths), sum(states_of)))
    graph = graph_of(states_of, model)
    paths = viterbi.best_paths(torch.from_numpy(emissions), lengths, graph)
    for k, length in enumerate(lengths):
        states, begins = paths.states[k, :length].tolist(), paths.begins[k, :length].tolist()
        assert score_of(emissions[k], states, begins, states_of, model) == pytest.approx(
            paths.scores[k].item(), rel=1e-12
        )
        alone = viterbi.best_paths(torch.from_numpy(emissions[k : k + 1]), [length], graph)
        assert alone.scores[0].item() == paths.scores[k].item() and torch.equal(
            alone.states[0, :length], paths.states[k, :length]
        )
    # Better emissions along the path leave it the best.
    for k, length in enumerate(lengths):
        emissions[k, np.arange(length), paths.states[k, :length].numpy()] += 1.0
    again = viterbi.best_paths(torch.from_numpy(emissions), lengths, graph)
    assert torch.equal(again.states, paths.states)


def test_a_long_recording_in_float32_has_the_path_of_float64():
    """Scores reach two millions, as in an hour of a net that is not sure; float32 has steps of an eighth there."""
    model, draw = made_up((3, 5, 3), 0)
    emissions = torch.from_numpy(draw.normal(-500, 1, size=(1, 4000, 11))).float()
    graph = graph_of((3, 5, 3), model)
    found = viterbi.best_paths(emissions, [4000], viterbi.Graph(**{k: _float(p) for k, p in vars(graph).items()}))
    exact = viterbi.best_paths(emissions.double(), [4000], graph)
    assert torch.equal(found.states, exact.states) and torch.equal(found.begins, exact.begins)
    assert found.scores.item() == pytest.approx(exact.scores.item(), rel=1e-6) and exact.scores.item() < -1e6


def _float(part):
    return part.float() if part.is_floating_point() else part


def test_estimates_are_counted_and_add_up_to_one():
    silence, one, other = phones.NUMBER["h#"], phones.NUMBER["aa"], phones.NUMBER["b"]
    first = phones.FIRST[one]
    states = [torch.tensor([first, first, first, first + 1, first + 2]), torch.tensor([first, first + 1])]
    made = hmm.estimate(states, [[silence, one, silence], [silence, one, one]])
    assert made.stay[first].exp().item() == pytest.approx((2 + 1) / (4 + 2))
    assert made.prior[first].exp().item() == pytest.approx((4 + 1) / (7 + 185))
    for total in (made.prior.exp().sum(), made.start.exp().sum(), *(made.follow.exp().sum(1) + made.end.exp())):
        assert total.item() == pytest.approx(1.0, abs=1e-5)
    # 8 followers in all: aa 3, h# 3, the end 2; aa has 3 followers of 3 kinds.
    unigram = (3 + 1) / (8 + 62)
    assert made.follow[one, silence].exp().item() == pytest.approx((1 + 3 * unigram) / (3 + 3))
    assert made.follow[one, other].exp().item() == pytest.approx((0 + 3 * (1 / 70)) / 6)
    assert made.follow[other, silence].exp().item() == pytest.approx((0 + unigram) / 1)


def test_what_the_net_is_sure_of_is_decoded_to_the_frame():
    model, labels, states, bounds = model_of_timit()
    posteriors, lengths = padded(states, sure=30.0)
    paths = decoding.decode(model, posteriors, lengths)
    assert decoding.segments(paths, lengths) == bounds
    assert [row[:n].tolist() for row, n in zip(paths.states, lengths, strict=True)] == [row.tolist() for row in states]
    assert [[one.phone for one in row] for row in decoding.segments(paths, lengths)] == labels


def test_a_higher_penalty_never_gives_more_phones_and_scale_weighs_the_net():
    model, _, states, _ = model_of_timit()
    posteriors, lengths = padded(states)
    counts = []
    for penalty in (-4.0, 0.0, 4.0, 8.0):
        changed = hmm.Hmm(**{**vars(model), "penalty": penalty})
        counts.append(sum(map(len, decoding.segments(decoding.decode(changed, posteriors, lengths), lengths))))
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]
    silent = hmm.Hmm(**{**vars(model), "scale": 0.0})
    alone = decoding.decode(silent, posteriors[:2], [30, 30])
    assert torch.equal(alone.states[0], alone.states[1])  # without the net both are the likeliest 30 frames


def test_an_aligned_path_is_the_best_of_all_divisions_of_the_frames():
    model, *_ = model_of_timit()
    posteriors = torch.randn(2, 9, 185, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    labels = [phones.numbers(["aa", "b"]), phones.numbers(["h#"])]
    lengths = [9, 8]
    paths = decoding.align(model, posteriors, lengths, labels)
    leave = (1 - model.stay.double().exp()).log()
    emissions = (posteriors - model.prior).double()
    for k, (row, length) in enumerate(zip(labels, lengths, strict=True)):
        through = [state for phone in row for state in hmm.states_of(phone)]
        scores = {}
        for cuts in itertools.combinations(range(1, length), len(through) - 1):
            ends = [*cuts, length]
            path = [state for state, a, b in zip(through, [0, *cuts], ends, strict=True) for _ in range(b - a)]
            score = sum(emissions[k, frame, state] for frame, state in enumerate(path))
            score += sum(leave[state] + (path.count(state) - 1) * model.stay[state] for state in through)
            scores[tuple(path)] = float(score)
        best = max(scores, key=scores.__getitem__)
        assert tuple(paths.states[k, :length].tolist()) == best
        assert paths.scores[k].item() == pytest.approx(scores[best], rel=1e-5)
    assert paths.states[1].tolist()[8] == -1


def test_alignment_finds_the_phones_it_is_given_and_keeps_their_bounds_where_asked():
    model, labels, states, bounds = model_of_timit()
    posteriors, lengths = padded(states, sure=12.0)
    paths = decoding.align(model, posteriors, lengths, labels)
    assert [[one.phone for one in row] for row in decoding.segments(paths, lengths)] == labels
    within = decoding.align_within(model, posteriors, bounds)
    for row, parts in zip(within, bounds, strict=True):
        for one in parts:
            own = row[one.start : one.stop].tolist()
            assert own == sorted(own) and set(own) == set(hmm.states_of(one.phone))
    assert all(map(torch.equal, within, states))  # the net is sure of the equal division
    posteriors, _ = padded(states, sure=0.0)
    assert not all(map(torch.equal, decoding.align_within(model, posteriors, bounds), states))


def test_a_phone_with_fewer_frames_than_states_is_divided_equally():
    model, *_ = model_of_timit()
    aa, silence = phones.numbers(["aa", "h#"])
    bounds = [[hmm.Segment(silence, 0, 4), hmm.Segment(aa, 4, 5), hmm.Segment(aa, 5, 7), hmm.Segment(aa, 7, 12)]]
    (states,) = decoding.align_within(model, torch.randn(1, 12, 185).log_softmax(-1), bounds)
    a, s = phones.FIRST[aa], phones.FIRST[silence]
    assert states[:7].tolist() == [s, s + 1, s + 3, s + 4, a + 1, a, a + 2]
    assert set(states[7:].tolist()) == {a, a + 1, a + 2}


class Largest(TorchDispatchMode):
    """The most numbers of any tensor that is made meanwhile."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.most = max(self.most, made.numel())
        return made


def test_a_long_silence_does_not_make_short_phones_take_as_much_memory():
    model, *_ = model_of_timit()
    aa, silence = phones.numbers(["aa", "h#"])
    bounds = [[hmm.Segment(silence, 0, 900), *(hmm.Segment(aa, k, k + 3) for k in range(900, 1800, 3))]]
    posteriors = torch.zeros(1, 1800, 185).log_softmax(-1)
    with Largest() as made:
        (states,) = decoding.align_within(model, posteriors, bounds)
    assert states[900:].tolist() == [phones.FIRST[aa], phones.FIRST[aa] + 1, phones.FIRST[aa] + 2] * 300
    assert made.most <= 185 * decoding.FRAMES  # 301 phones of 900 frames would be four times as many


def test_what_cannot_be_decoded_is_refused():
    model, *_ = model_of_timit()
    good = torch.zeros(1, 4, 185)
    with pytest.raises(ValueError, match=r"\(utterances, frames, 185\), not \(1, 4, 39\)"):
        decoding.decode(model, torch.zeros(1, 4, 39), [4])
    with pytest.raises(ValueError, match="the net they came from has diverged"):
        decoding.decode(model, good * float("nan"), [4])
    with pytest.raises(ValueError, match="an utterance of 2 frames has no path"):
        decoding.decode(model, good.expand(2, -1, -1), [4, 2])
    with pytest.raises(ValueError, match="1 to 4 frames, but lengths"):
        decoding.decode(model, good, [5])
    with pytest.raises(ValueError, match="an utterance of 0 frames has no path"):
        decoding.recognise(model, good[0, :0], [0])
    with pytest.raises(ValueError, match="an utterance of 4 frames cannot pass through 6 states"):
        decoding.align(model, good, [4], [[1, 2]])


def test_utterances_one_after_another_are_recognised_as_each_alone(monkeypatch):
    model, _, states, _ = model_of_timit()
    posteriors, counts = padded(states)
    flat = torch.cat([row[:count] for row, count in zip(posteriors, counts, strict=True)])
    monkeypatch.setattr(decoding, "FRAMES", 200)
    found = decoding.recognise(model, flat, counts)
    alone = [
        decoding.segments(decoding.decode(model, posteriors[k : k + 1, :n], [n]), [n])[0] for k, n in enumerate(counts)
    ]
    assert found == alone
