"""From a matplotlib figure to an SVG string that follows the page's colours and fonts, light or dark.

Each colour is drawn as its light value and then written as a CSS variable with that value as fallback, so that the
same string is also a good picture on its own.
"""

import html
import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Told apart by people who see colours differently; 4.5 : 1 or more against the page, since labels have them too.
NAMED = {"backprop": 0, "dropout": 1, "dropout+input": 2}
ARMS = ("#b25400", "#1c56c4", "#00806f", "#8a3fa8", "#b3294f", "#5f6b00")
INK, SOFT, RULE, PAPER = "#1d2329", "#59636e", "#e1e4e8", "#ffffff"
VARIABLES = {INK: "ink", SOFT: "soft", RULE: "rule", PAPER: "paper"} | {c: f"arm-{k}" for k, c in enumerate(ARMS)}

FONT = "font-family: system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "meannet",  # the same run gives the same bytes
    "text.parse_math": False,  # names are names, also with a $ in them
    "font.family": "DejaVu Sans",
    "font.size": 13.0,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": RULE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "ytick.left": False,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def arm_colour(arms: Sequence[str], arm: str) -> str:
    """The paper's three arms and their variants ("dropout, lr 1") have colours of their own; others take the rest."""
    kinds = list(dict.fromkeys(name.split(",")[0] for name in arms))
    kind = arm.split(",")[0]
    if kind in NAMED:
        return ARMS[NAMED[kind]]
    others = [name for name in kinds if name not in NAMED]
    free = [k for k in range(len(ARMS)) if k not in {NAMED[name] for name in kinds if name in NAMED}]
    return ARMS[free[others.index(kind) % len(free)]]


def drawing(width: int, height: int) -> tuple[Figure, Axes]:
    """An empty figure of this many CSS pixels and its axes; make and finish it within `style()`."""
    made = Figure(figsize=(width / 72, height / 72), dpi=72)  # an SVG of matplotlib counts in points
    return made, made.add_axes((0, 0, 1, 1))


def style() -> AbstractContextManager[None]:
    return matplotlib.rc_context(STYLE)


def finish(drawn: Figure, label: str) -> str:
    """The figure as one <svg> element, `label` its accessible name."""
    file = io.StringIO()
    drawn.savefig(file, format="svg")
    text = file.getvalue()
    text = text[text.index(">", text.index("<svg")) + 1 :]
    # matplotlib's own style sheet would reach the whole page, and its metadata hold the time of day.
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', text))
    text = re.sub(r"<[^>]+>", lambda tag: _tidied(tag[0], used), text)  # tags only: names must stay as they are
    width, height = (round(72 * inches) for inches in drawn.get_size_inches())
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{html.escape(label)}" style="{FONT}; stroke-linejoin: round">\n{text.strip()}'
    )


def within(page_mark: str, drawn: str) -> str:
    """The figure with ids that no other figure of a page shares; a clip path of a hidden figure would clip nothing."""
    marked = re.compile(r'(url\(#|href="#| id=")(?=[\w.-]+["\)])')
    return re.sub(r"<[^>]+>", lambda tag: marked.sub(rf"\g<1>{page_mark}-", tag[0]), drawn)


def _tidied(tag: str, used: set[str]) -> str:
    """A tag with short numbers, the page's font and colours, and an id only where something refers to it."""
    tag = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), tag)
    tag = re.sub(r"font: (?:\w+ )*([\d.]+px) [^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"font-family: [^;\"]*; ", "", tag)
    for colour, name in VARIABLES.items():
        tag = tag.replace(colour, f"var(--{name}, {colour})")
    tag = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", tag)
    return re.sub(r"\s*\n\s*", " ", tag)
