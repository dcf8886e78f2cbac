"""News stories by their words: sparse counts straight into a net, as the paper's Reuters experiment has them (C).

MEANNET_DATA=FOLDER python examples/text_counts.py

FOLDER/reuters21578/reuters21578_aptemod.tar.gz is Reuters-21578, 10,788 stories, split into training and test.
"""

import sys
import tarfile

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from meannet import DropoutClassifier
from meannet.data import folder

ARCHIVE = "reuters21578/reuters21578_aptemod.tar.gz"
TOPICS = 10  # the most frequent ones


def stories() -> dict[str, tuple[list[str], list[str]]]:
    """Texts and topics of "training" and "test", of stories with one topic."""
    path = folder() / ARCHIVE
    if not path.exists():
        sys.exit(f"{path} is not there; set MEANNET_DATA to the folder that holds {ARCHIVE}")
    with tarfile.open(path) as archive:
        files = {m.name.partition("/")[2]: archive.extractfile(m) for m in archive if m.isfile()}
        texts = {name: file.read().decode("latin-1") for name, file in files.items() if file}
    topics = dict(line.split(maxsplit=1) for line in texts["cats.txt"].splitlines())
    single = {name: topic for name, topic in topics.items() if " " not in topic}
    return {
        part: ([texts[name] for name in names], [single[name] for name in names])
        for part in ("training", "test")
        for names in [sorted(name for name in single if name.startswith(part))]
    }


def main(words: int = 2000, **settings) -> tuple[float, float]:
    found = stories()
    kinds, counts = np.unique(found["training"][1], return_counts=True)
    chosen = set(kinds[np.argsort(-counts)[:TOPICS]])
    learn, test = ([(t, c) for t, c in zip(*found[part], strict=True) if c in chosen] for part in found)
    vectorizer = CountVectorizer(max_features=words, stop_words="english")
    X = vectorizer.fit_transform(text for text, _ in learn).log1p()  # log(1 + C), sparse all the way
    X_new = vectorizer.transform(text for text, _ in test).log1p()
    y, y_new = (np.array([topic for _, topic in part]) for part in (learn, test))
    errors = []
    for model in (DropoutClassifier(standardize=False, random_state=0, **settings), MultinomialNB()):
        errors.append(float((model.fit(X, y).predict(X_new) != y_new).mean()))
        print(f"{type(model).__name__}: {errors[-1]:.1%} of {len(y_new)} stories wrong, {X.shape[1]} words")
    return errors[0], errors[1]


if __name__ == "__main__":
    main()
