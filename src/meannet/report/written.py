"""How the report and the command line write numbers."""

import statistics
from collections.abc import Sequence

MINUS, NONE = "−", "–"


def count(value: int) -> str:
    """Thousands apart."""
    return f"{value:,}"


def decimal(value: float | None) -> str:
    """One decimal, a real minus sign, thousands apart."""
    return NONE if value is None else f"{value:,.1f}".replace("-", MINUS)


def short(value: float) -> str:
    """No decimal where three digits stand before it."""
    return f"{value:,.0f}" if abs(value) >= 100 else decimal(value)


def plain(value: float | None) -> str:
    """As few digits as it takes: 160, 15.6."""
    return NONE if value is None else f"{value:,.6g}".replace("-", MINUS)


def signed(value: float | None) -> str:
    return NONE if value is None else f"{value:+,.1f}".replace("-", MINUS)


def spread(mean: float | None, sd: float | None) -> str:
    """mean ± sd; the mean alone where one seed has no spread."""
    return decimal(mean) if sd is None or mean is None else f"{decimal(mean)} ± {decimal(sd)}"


def spread_of(values: Sequence[float]) -> str:
    """The same of single values."""
    return spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def percent(part: float | None, whole: int) -> str:
    return NONE if part is None or not whole else f"{100 * part / whole:.2f} %"


def rate(percents: float) -> str:
    """12.3 %, 0.22 %, 0.0071 %: a training error may be far below one per cent."""
    return f"{percents:.1f} %" if percents >= 1 else f"{percents:.2g} %"


def several(count: int, one: str) -> str:
    """1 seed, 10 seeds."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """8.2 s, 4 min 31 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
