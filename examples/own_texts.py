"""Classify texts of your own: a folder with a subfolder of .txt files for each label, or a CSV file.

    python examples/own_texts.py FOLDER
    python examples/own_texts.py table.csv --text body --label topic

Documents become log(1 + C) of their commonest words, as in appendix C of the paper; a fifth of them is held out.
"""

import argparse
from pathlib import Path

from sklearn.model_selection import train_test_split

from meannet import DropoutClassifier
from meannet.data import counts
from meannet.data.texts import read_csv, read_folder


def main(path: str, text: str = "text", label: str = "label", n_words: int = 2000, **settings) -> float:
    """Share of the held-out texts that the mean network gets right."""
    read = read_folder(path) if Path(path).is_dir() else read_csv(path, text, label)
    learn, judge, learn_labels, judge_labels = train_test_split(*read, test_size=0.2, random_state=0, stratify=read[1])

    documents = counts(learn, n_words)
    net = DropoutClassifier(hidden=(400,), dropout_visible=0.2, random_state=0, **settings)
    net.fit(documents.inputs, learn_labels)

    # New texts are counted by the words of those learned from.
    new = counts(judge, words=documents.words)
    right = net.score(new.inputs, judge_labels)
    print(f"{len(learn)} texts, {len(documents.words)} words, such as {', '.join(documents.words[:5])}")
    print(f"{100 * right:.1f} % of {len(judge)} held-out texts are labelled right")
    sure = net.predict_proba(new.inputs).max(1)
    for k, answer in enumerate(net.predict(new.inputs[:5])):
        print(f"  {answer}, {100 * sure[k]:.0f} % sure: {' '.join(judge[k].split())[:60]}")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Classify texts of your own.")
    parser.add_argument("path")
    parser.add_argument("--text", default="text", help="column of a CSV file that holds the texts")
    parser.add_argument("--label", default="label", help="column that holds the labels")
    options = parser.parse_args()
    try:
        main(options.path, options.text, options.label)
    except (OSError, ValueError) as error:
        parser.exit(1, f"{error}\n")
