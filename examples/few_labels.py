"""Few labels, many pictures: a deep belief net learns from all pictures, and dropout finetunes it on some labels (A.2).

    python examples/few_labels.py                       digits of scikit-learn, a minute on a CPU
    python examples/few_labels.py --data mnist --device cuda -o few_labels.svg

For each number of labels it trains nets from scratch and nets that start from what was pretrained on all pictures, on
the same labels, with settings of their own, and prints test errors, mean and standard deviation over seeds.
"""

import argparse
import json
import statistics
import time

import numpy as np
from sklearn.frozen import FrozenEstimator

from meannet import DBN, DropoutClassifier
from meannet import device as machine
from meannet.config import Data
from meannet.data import load

DIGITS = {"hidden": (300, 300), "epochs": 60, "batch": 10, "labels": (20, 50, 100, 300)}
MNIST = {"hidden": (500, 500, 2000), "epochs": 50, "batch": 100, "labels": (100, 300, 1000, 3000, 5000)}


def main(data="digits", labels=None, seeds=3, epochs=None, device="auto", out=None, as_json=False):
    chosen, began = DIGITS if data == "digits" else MNIST, time.time()
    cases = load(Data(name=data), say=print)
    if data == "digits":  # its 300 training pictures are too few to speak of many; the test set's are not touched
        held = load(Data(name=data, held_out=True), say=print).test
        pictures = np.concatenate((cases.train.inputs.numpy(), held.inputs.numpy()))
        right = np.concatenate((cases.train.targets.numpy(), held.targets.numpy()))
    else:
        pictures, right = cases.train.inputs.numpy(), cases.train.targets.numpy()
    test, test_right = cases.test.inputs.numpy(), cases.test.targets.numpy()
    common = {"batch": chosen["batch"], "device": device}
    stacks = [
        DBN(chosen["hidden"], epochs=epochs or chosen["epochs"], lr=0.1, random_state=seed, **common).fit(pictures)
        for seed in range(seeds)
    ]
    rows = []
    for count in labels or chosen["labels"]:
        errors = {"from scratch": [], "pretrained": []}
        for seed, stack in enumerate(stacks):
            some = balanced(right, count, seed)
            scratch = DropoutClassifier(chosen["hidden"][:2], random_state=seed, device=device)
            tuned = DropoutClassifier(pretrain=FrozenEstimator(stack), lr=1.0, random_state=seed, device=device)
            for name, net in (("from scratch", scratch), ("pretrained", tuned)):
                wrong = net.fit(pictures[some], right[some]).predict(test) != test_right
                errors[name].append(int(wrong.sum()))
        rows.append({"labels": count, "errors": errors, "n_test": len(test)})
        told = ", ".join(
            f"{name} {statistics.fmean(e):.0f}" + (f" ± {statistics.stdev(e):.0f}" if len(e) > 1 else "")
            for name, e in errors.items()
        )
        if not as_json:
            print(f"{count} labels, errors of {len(test):,}: {told}", flush=True)
    if as_json:
        facts = {"date": time.strftime("%Y-%m-%d"), "device": machine.describe(machine.choose(device))}
        facts |= {"commit": machine.commit(), "versions": machine.versions(), "seconds": round(time.time() - began)}
        print(json.dumps(facts | {"data": data, "pictures": len(pictures), "seeds": seeds, "rows": rows}, indent=1))
    if out:
        draw(rows, out, data)
    return rows


def balanced(right, count, seed):
    """So many cases, as many of each class as can be."""
    order = np.random.default_rng(seed).permutation(len(right))
    each = [order[right[order] == label] for label in np.unique(right)]
    turns = [case for turn in range(max(map(len, each))) for case in (one[turn] for one in each if turn < len(one))]
    return np.array(turns[:count])


def draw(rows, out, data):
    """Errors in per cent against labels, both axes by factors; a dot for every seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    counts = [row["labels"] for row in rows]
    for name, colour in (("from scratch", "#b25400"), ("pretrained", "#1c56c4")):
        share = np.array([[100 * e / row["n_test"] for e in row["errors"][name]] for row in rows])
        axes.plot(counts, share, ".", color=colour, alpha=0.4)
        axes.plot(counts, share.mean(1), color=colour, linewidth=2.2)
        said = {"textcoords": "offset points", "color": colour, "annotation_clip": False}
        axes.annotate(f"{name} {share[-1].mean():.1f} %", (counts[-1], share[-1].mean()), (8, -4), **said)
    axes.set(xscale="log", yscale="log", xlabel="labels", ylabel="test errors")
    axes.margins(y=0.15)
    low, high = axes.get_ylim()
    ticks = [tick for tick in (1, 2, 3, 5, 10, 20, 30, 50) if low < tick < high]
    axes.set(xticks=counts, yticks=ticks)
    axes.set_xticklabels([f"{count:,}" for count in counts])
    axes.set_yticklabels([f"{tick} %" for tick in ticks])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    few, (scratch, tuned) = counts[0], (100 * np.mean(e) / rows[0]["n_test"] for e in rows[0]["errors"].values())
    axes.set_title(
        f"{data}: pretraining on all pictures takes errors with {few} labels from {scratch:.0f} to {tuned:.0f} %"
    )
    figure.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--labels", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="of pretraining, for each layer")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("-o", "--out", metavar="FILE.svg")
    main(**vars(parser.parse_args()))
