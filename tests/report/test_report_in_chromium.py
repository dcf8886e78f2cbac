"""The page in a real Chromium: nothing is fetched, nothing fails, every picture is drawn, nothing overflows a phone."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meannet import report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --remote-debugging-pipe"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian: apt install chromium)")


class Tab:
    """A Chromium tab driven through its DevTools protocol over two pipes."""

    def __init__(self, send: int, receive: int) -> None:
        self.send, self.receive, self.number = send, receive, 0
        self.rest, self.session = b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        os.write(
            self.send, json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        )
        while (answer := self._next()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, page: Path, *, width: int, dark: bool = False, height: int = 900) -> None:
        """Load the page in a window of this width; events of pages before are forgotten."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def of(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event["method"] in methods]

    def screenshot(self, to: Path) -> None:
        to.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            self.rest += os.read(self.receive, 1 << 20) or pytest.fail("Chromium went away")
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    assert CHROMIUM
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Chromium reads commands from descriptor 3 and writes answers to 4.
    command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", command, CHROMIUM, *FLAGS.split(), f"--user-data-dir={profile}"],
        pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(ours_out, ours_in)
    finally:
        process.terminate()
        process.wait(timeout=20)
        os.close(ours_out)
        os.close(ours_in)


@pytest.fixture(scope="module")
def tab(tmp_path_factory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="module")
def page(fabricate, experiment, tmp_path_factory) -> Path:
    """All there is on one page: a full run, one of two nets with a net stopped, and an unfinished one."""
    folder = tmp_path_factory.mktemp("runs")
    two = replace(experiment, recipe="two nets", net=replace(experiment.net, hidden=((800, 800), (1200, 1200))))
    runs = [
        fabricate(folder / "one"),
        fabricate(folder / "two", two, stopped=True),
        fabricate(folder / "half", until=80),
    ]
    report.write(runs, folder / "page.html")
    return folder / "page.html"


@pytest.mark.parametrize("width", [1200, 360])
def test_the_page_fetches_nothing_logs_nothing_and_draws_every_picture(tab: Tab, page: Path, width: int):
    tab.open(page, width=width)
    drawn = tab.evaluate("""
        [...document.querySelectorAll("figure svg")].filter(svg => svg.checkVisibility()).map(svg => [
            svg.getBoundingClientRect().width,
            [...svg.querySelectorAll("path")]
                .filter(path => getComputedStyle(path).stroke != "none" && path.getBBox().height > 15).length])
    """)
    images = tab.evaluate("""
        Promise.all([...document.images].map(image => image.decode().then(() => [image.naturalWidth, image.width])))
    """)
    assert len(drawn) == 2 + 4 + 2 + 2 + 4  # errors and training error of three runs, then sampled nets
    assert all(across > 300 and curves >= 2 for across, curves in drawn)
    assert len(images) == 9 and all(natural == 289 and across > 250 for natural, across in images)
    fetched = [request["request"]["url"] for request in tab.of("Network.requestWillBeSent")]
    assert [url for url in fetched if not url.startswith("data:")] == [page.as_uri()]
    assert not tab.of("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


def test_a_phone_scrolls_tables_but_not_the_page(tab: Tab, page: Path):
    tab.open(page, width=360)
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    sizes = tab.evaluate("""
        [...document.querySelectorAll("figure svg text")].filter(text => text.checkVisibility())
            .map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)
    """)
    assert min(sizes) > 9  # CSS pixels


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_of_a_figure_stands_out_from_the_page(tab: Tab, page: Path, dark: bool):
    tab.open(page, width=1200, dark=dark)
    colours = tab.evaluate("""
        [getComputedStyle(document.body).backgroundColor,
         ...new Set([...document.querySelectorAll("figure text")].map(text => getComputedStyle(text).fill))]
    """)
    background, *texts = [luminance(colour) for colour in colours]
    assert len(texts) >= 5 and (background < 0.05) == dark
    assert min((max(t, background) + 0.05) / (min(t, background) + 0.05) for t in texts) >= 4.5


def luminance(colour: str) -> float:
    """Relative luminance of a CSS rgb(…) colour, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
