"""scikit-learn's own checks of estimators, all of them, with no failure expected."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from meannet import DropoutClassifier, DropoutRegressor

# Small and short, with dropout; nothing else differs from what users get.
SMALL = {"hidden": (24,), "epochs": 40}
CHECKS = parametrize_with_checks([DropoutClassifier(**SMALL), DropoutRegressor(**SMALL)])
names, pairs = CHECKS.args


@pytest.mark.parametrize(names, list(pairs), **CHECKS.kwargs)  # a list: scikit-learn 1.6 gives a generator
def test_scikit_learn_check_holds(estimator, check):
    check(estimator)
