"""scikit-learn's own checks of the pretrained transformers, all of them, with no failure expected."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from meannet import DBM, DBN, BernoulliRBM, DropoutClassifier, GaussianRBM

# Small and short; nothing else differs from what users get.
CHECKS = parametrize_with_checks(
    [
        BernoulliRBM(6, epochs=3),
        BernoulliRBM(6, epochs=3, persistent=True),
        GaussianRBM(6, epochs=3),
        DBN((5, 4), epochs=3),
        DBM((5, 4), epochs=2, joint_epochs=2, chains=5, sweeps=3),
        DropoutClassifier(pretrain=DBN((24,), epochs=10, random_state=0), epochs=60, lr=2.0),
    ]
)
names, pairs = CHECKS.args


@pytest.mark.parametrize(names, list(pairs), **CHECKS.kwargs)  # a list: scikit-learn 1.6 gives a generator
def test_scikit_learn_check_holds(estimator, check):
    check(estimator)
