"""How sure is a net? Where thinned networks disagree, the mean network is wrong more often.

python examples/uncertainty.py
"""

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split

from meannet import DropoutClassifier, DropoutRegressor


def classes(**settings) -> tuple[float, float]:
    """Errors on the tenth of the digits on which 100 thinned networks disagree most, and on the rest."""
    X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), train_size=300, random_state=0)
    clf = DropoutClassifier(random_state=0, **settings).fit(X, y)
    sampled = clf.sample_proba(X_new, 100)  # (networks, cases, classes)
    mean = sampled.mean(0)
    # Entropy of the mean less the mean entropy: what the networks know differently, not what none of them knows.
    disagreement = entropy(mean) - entropy(sampled).mean(0)
    doubtful = disagreement >= np.quantile(disagreement, 0.9)
    wrong = clf.predict(X_new) != y_new
    doubted, others = wrong[doubtful].mean(), wrong[~doubtful].mean()
    print(f"digits: {doubted:.1%} wrong where networks disagree most, {others:.1%} elsewhere")
    return float(doubted), float(others)


def numbers(**settings) -> tuple[float, float]:
    """Mean absolute errors on patients like those that were learned from, and spread there and far away."""
    X, X_new, y, y_new = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    reg = DropoutRegressor(random_state=0, **settings).fit(X, y)
    found, spread = reg.predict(X_new, return_std=True)
    _, far = reg.predict(5 * X_new, return_std=True)  # patients unlike any that were seen
    print(f"diabetes: {np.abs(found - y_new).mean():.0f} off on average, targets vary by {y_new.std():.0f}")
    print(f"diabetes: networks differ by {spread.mean():.0f}, and by {far.mean():.0f} far from all cases")
    return float(spread.mean()), float(far.mean())


def entropy(probabilities: np.ndarray) -> np.ndarray:
    return -(probabilities * np.log(probabilities + 1e-12)).sum(-1)


if __name__ == "__main__":
    classes()
    numbers()
