"""An architecture chosen on held-out cases (body): many are tried with dropout there, the test set is not touched."""
