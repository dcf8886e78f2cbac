"""Warnings that point to the line of the user's own program that led to them."""

import sys
import warnings

PASSED_OVER = {"meannet", "sklearn", "joblib"}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest caller that is neither of this package nor of scikit-learn, whose wrappers stand between."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
