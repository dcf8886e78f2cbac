"""An architecture chosen on held-out cases (body): many are tried there, the test set is not touched."""
