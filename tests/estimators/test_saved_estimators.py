"""Estimators on disk: exact, checked, and without pickle."""

import numpy as np
import pytest
from estimator_toys import classifier, regressor, table

from meannet import BernoulliRBM, DropoutClassifier, DropoutRegressor
from meannet.checkpoint import CheckpointError

X, Y = table()
SEVERAL = np.stack((np.array(["a", "b", "c"], dtype=object)[Y], np.array(["x", "y", "z"], dtype=object)[Y]), 1)


@pytest.mark.parametrize(
    ("made", "y"),
    [
        (classifier(n_nets=2, dropout_visible=0.2, class_weight={0: 1, 2: 3.5}, limit=np.inf), Y),
        (classifier(class_weight="balanced", hidden=[4]), np.array(["no", "yes", "é"])[Y]),
        (classifier(), np.eye(3, dtype=int)[Y][:, :2]),
        (classifier(random_state=np.random.RandomState(1)), SEVERAL),
        (regressor(), X[:, 0]),
        (regressor(random_state=None, units="logistic"), X[:, :2]),
    ],
    ids=["numbers", "words", "multi-label", "several", "regression", "regressions"],
)
def test_a_loaded_estimator_is_the_saved_one(made, y, tmp_path):
    made.fit(X, y).save(tmp_path / "net.safetensors")
    again = type(made).load(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(again.predict(X), made.predict(X))
    sample = "sample_proba" if isinstance(made, DropoutClassifier) else "sample_predict"
    np.testing.assert_array_equal(getattr(again, sample)(X, 3), getattr(made, sample)(X, 3))
    parameters, before = again.get_params(), made.get_params()
    if not isinstance(before["random_state"], np.random.RandomState):
        assert parameters == before and repr(again) == repr(made)
    assert (again.n_iter_, again.history_, again.n_features_in_) == (made.n_iter_, made.history_, 6)
    weights = [part.partial_fit(X, y)._fleet.weights[0] for part in (again, made)]
    assert weights[0].equal(weights[1])  # training goes on alike
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


def test_a_damaged_or_wrong_file_is_refused(tmp_path):
    path = tmp_path / "net.safetensors"
    classifier().fit(X, Y).save(str(path))
    with pytest.raises(ValueError, match="holds DropoutClassifier"):
        DropoutRegressor.load(path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum is wrong"):
        DropoutClassifier.load(path)
    for kind in (DropoutClassifier, DropoutRegressor, BernoulliRBM):
        with pytest.raises(FileNotFoundError, match=f"there is no file {tmp_path / 'other'}"):
            kind.load(tmp_path / "other")


def test_only_what_json_holds_can_be_saved(tmp_path):
    fitted = classifier().fit(X, Y)
    fitted.class_weight = {(1, 2): 1.0}
    with pytest.raises(ValueError, match=r"cannot save \(1, 2\)"):
        fitted.save(tmp_path / "net.safetensors")
