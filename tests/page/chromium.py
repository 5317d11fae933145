# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A headless Chromium for the tests of the page, and a page that is open in it.

A script of tests imports this module and ends with `chromium.main()`; the fixture `page` is a Page. Where the browser, its
driver or selenium is missing, the script is skipped with the reason. `./dev setup browser` installs all three.
"""
from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import NoReturn

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
sys.dont_write_bytecode = True
import harness  # noqa: E402
import truth  # noqa: E402
from harness import DATA, Skip, check  # noqa: E402

SYSTEM_PYTHON = "/usr/bin/python3"
WAIT_S = 60 * harness.PATIENCE
PLOT_LEFT, PLOT_RIGHT, PLOT_BOTTOM = 74, 12, 20
SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys as Keys
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    # Debian's package is for the system's Python alone, which need not be the first of the PATH.
    if os.access(SYSTEM_PYTHON, os.X_OK) and os.environ.get("TIDEMARK_PAGE_PYTHON") != SYSTEM_PYTHON:
        os.environ["TIDEMARK_PAGE_PYTHON"] = SYSTEM_PYTHON
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    harness.skip_all("selenium is not there (./dev setup browser)")


def find_program(*names):
    for name in names:
        for folder in os.environ.get("PATH", "").split(":") + ["/usr/bin", "/usr/lib/chromium"]:
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
    return None


def recording(name):
    for folder in (os.path.join(harness.MORE, "traces"), DATA):
        for ending in (".pickle.xz", ".pickle", ".tide"):
            path = os.path.join(folder, name + ending)
            if os.path.exists(path):
                return path
    raise Skip(f"TIDEMARK_DATA has no traces/{name}")


@functools.cache
def the_browser():
    """One for all tests."""
    browser, driver = find_program("chromium", "chromium-browser", "google-chrome"), find_program("chromedriver")
    if not browser or not driver:
        harness.skip_all("chromium or its driver is not there (./dev setup browser)")
    # The driver is asked on the loopback address, never through a proxy.
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "localhost,127.0.0.1"
    why = ""
    # Root has no sandbox, and in a container nobody may have one.
    for more in ([["--no-sandbox"]] if os.geteuid() == 0 else [[], ["--no-sandbox"]]):
        try:
            started = webdriver.Chrome(service=Service(driver), options=browser_options(browser, more))
            atexit.register(started.quit)
            return started
        except Exception as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
    harness.skip_all(f"the browser does not start ({why})")


def browser_options(browser, more):
    """Without a display or a GPU, and with files in /tmp instead of /dev/shm, which is small in containers."""
    options = Options()
    options.binary_location = browser
    for argument in ("--headless=new", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage", "--window-size=1600,1000",
                     "--force-device-scale-factor=1", *more):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return options


def entries_of(path):
    """The entries of a pickled recording."""
    if path.endswith(".tide"):
        raise Skip("TIDEMARK_DATA has no pickle of it")
    return truth.load(path)["device_traces"][0]


class Page:
    """A page that is open in the browser."""

    def __init__(self, driver, folder):
        self.driver, self.folder = driver, folder

    def open(self, name, hash_="", more=(), paths=None, options=()):
        paths = paths or [recording(one) for one in (name, *more)]
        page = os.path.join(self.folder, "-".join((name, *more, *options)) + ".html")
        if not os.path.exists(page):
            harness.run("view", *options, *paths, "-o", page).works()
        self.path = paths[0]
        self.go("file://" + page + hash_)

    def go(self, address):
        self.driver.get("about:blank")
        self.driver.get(address)
        self.wait(lambda: self.run("return document.documentElement.dataset.ready") == "true", "the data is read")
        self.settle("the page")

    def settle(self, name):
        self.wait(lambda: self.run("return window.tidemark.link.waiting.size") == 0, f"{name} has all answers")

    def run(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def wait(self, condition, text):
        waiting = WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException])
        return waiting.until(lambda _: condition(), f"in {WAIT_S:g} s it never happened that {text}")

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.wait(lambda: (self.all(selector) or [None])[0], f"there is {selector}")

    # The page may replace an element between finding and using it. These find it anew until it can be used.

    def use(self, selector, action):
        return self.wait(lambda: [action(element) for element in self.all(selector)[:1]], f"there is {selector}")[0]

    def text(self, selector):
        return self.use(selector, lambda element: element.text)

    def texts(self, selector):
        return self.run("return Array.from(document.querySelectorAll(arguments[0]), (one) => one.innerText)", selector)

    def attribute(self, selector, name):
        return self.use(selector, lambda element: element.get_attribute(name))

    def attributes(self, selector, name):
        return self.run("return Array.from(document.querySelectorAll(arguments[0]), (one) => one.getAttribute(arguments[1]))",
                        selector, name)

    def click(self, selector):
        self.use(selector, lambda element: element.click())

    def press(self, selector, key, shown):
        """Presses a key on an element until another one is shown."""
        self.wait(lambda: self.all(shown) or [self.keys(element, key) for element in self.all(selector)[:1]] and None,
                  f"{selector} shows {shown}")

    def hash(self):
        return dict(part.split("=", 1) for part in self.run("return location.hash").lstrip("#").split("&") if "=" in part)

    def state(self, key, text):
        return self.wait(lambda: self.hash().get(key), text)

    def canvas(self, panel):
        found = self.all(f"[aria-label='{panel}'] .plot canvas[tabindex]")
        check(found, f"the panel {panel} has no picture")
        return found[0]

    def width(self, canvas):
        """Of the plot, in pixels."""
        return canvas.rect["width"] - PLOT_LEFT - PLOT_RIGHT

    def y_of(self, canvas, address):
        """Where an address is in the picture of addresses."""
        base, extent, low, total, unit = self.run(
            "const l = window.tidemark.lanes; return [Array.from(l.base), Array.from(l.extent), Array.from(l.low), l.total, "
            "window.tidemark.unit]")
        lane = next(i for i in range(len(base)) if base[i] * unit <= address < (base[i] + extent[i]) * unit)
        return (low[lane] + address / unit - base[lane]) / total * (canvas.rect["height"] - PLOT_BOTTOM)

    def hand(self):
        """Each movement takes so many milliseconds."""
        return ActionChains(self.driver, duration=20)

    def point(self, hand, canvas, x, y):
        """Moves to a point of a picture, in pixels from its top left."""
        box = canvas.rect
        return hand.move_to_element_with_offset(canvas, round(x - box["width"] / 2), round(y - box["height"] / 2))

    def mouse(self, canvas, *points):
        """Moves to the first point, presses, moves to the others, releases."""
        hand = self.hand()
        for i, (x, y) in enumerate(points):
            self.point(hand, canvas, x, y)
            if i == 0:
                hand.click_and_hold()
        hand.release().perform()

    def wheel(self, canvas, pixels):
        self.hand().scroll_from_origin(ScrollOrigin.from_element(canvas), 0, pixels).perform()

    def keys(self, element, *keys):
        self.run("arguments[0].focus()", element)
        self.hand().send_keys(*keys).perform()

    def type(self, label, *keys):
        """Types into the box with that label."""
        self.hand().click(self.one(f"[aria-label='{label}']")).send_keys(*keys).perform()

    def tab(self, name):
        self.click(f"[data-tab='{name}']")

    def report(self):
        return harness.run("report", "--json", self.path).works().json()

    def check_console(self):
        bad = [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "ERROR")]
        check(not bad, f"the console has errors: {bad}")


def size_text(count):
    power, names = 0, ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and power < 4:
        count, power = count / 1024, power + 1
    return f"{count:.2f} {names[power]}" if power else f"{round(count)} B"


def main() -> NoReturn:
    with tempfile.TemporaryDirectory() as folder:

        @contextlib.contextmanager
        def page() -> Iterator[Page]:
            it = Page(the_browser(), folder)  # the folder keeps pages that several tests open
            it.driver.get_log("browser")
            yield it
            it.check_console()

        harness.main(page=page)
