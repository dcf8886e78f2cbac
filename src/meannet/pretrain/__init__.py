"""Generative pretraining (A.2, B.1): restricted Boltzmann machines, deep belief nets, deep Boltzmann machines."""
