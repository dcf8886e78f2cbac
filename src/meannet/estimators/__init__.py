"""Dropout for one's own data: scikit-learn estimators on the package's own nets and loop."""

from meannet.estimators.boltzmann import DBM as DBM
from meannet.estimators.pretrained import DBN as DBN
from meannet.estimators.pretrained import BernoulliRBM as BernoulliRBM
from meannet.estimators.pretrained import GaussianRBM as GaussianRBM
from meannet.estimators.supervised import DropoutClassifier as DropoutClassifier
from meannet.estimators.supervised import DropoutRegressor as DropoutRegressor
