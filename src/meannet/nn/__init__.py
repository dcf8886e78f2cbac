"""Networks: the dense fleets of A.1."""
