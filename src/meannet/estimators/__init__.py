"""Dropout for one's own data: scikit-learn estimators on the package's own nets and loop."""

from meannet.estimators.supervised import DropoutClassifier as DropoutClassifier
from meannet.estimators.supervised import DropoutRegressor as DropoutRegressor
