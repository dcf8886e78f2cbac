"""A table of one's own in Python: which rate of omission suits it, judged on rows that had no part in the choice.

python examples/own_table.py FILE.csv COLUMN; without a file it takes scikit-learn's wines. Where there is nothing to
choose, `meannet fit FILE.csv COLUMN` does as much without a program.
"""

import sys

from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from meannet import DropoutClassifier
from meannet.data.columns import Encoding, task
from meannet.data.table import read

RATES = {"dropout_hidden": [0.5, 0.2, 0.0]}  # where several are equally good the first is taken


def main(path: str | None = None, column: str = "", **settings) -> tuple[float, float]:
    if path:
        rows = task(read(path), column, kind="labels", say=print)
        # Words become columns of 0 and 1, and gaps the means of theirs. The net brings numbers to one scale by itself.
        inputs, labels = Encoding.of(rows).encode(rows.values), rows.target
    else:
        inputs, labels = load_wine(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    net = GridSearchCV(DropoutClassifier(random_state=0, **settings), RATES, cv=folds)  # within each fold's rows
    errors = []
    for name, model in (("net", net), ("random forest", RandomForestClassifier(random_state=0))):
        errors.append(1 - cross_val_score(model, inputs, labels, cv=folds).mean())
        print(f"{name}: {errors[-1]:.1%} of rows wrong that it was not trained on")
    print(f"chosen from all rows: {net.fit(inputs, labels).best_params_}")
    return errors[0], errors[1]


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except ValueError as error:  # says what is wrong with the file
        sys.exit(str(error))
