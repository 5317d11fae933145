# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A headless Chromium for the tests of the page, and a page that is open in it.

A script of tests imports this module and ends with `chromium.main(globals())`. Where the browser, its driver or selenium is
missing, that prints the reason and reports the script as skipped. `./dev setup browser` installs all three.
"""
import json, os, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
import truth

SOURCE = os.environ.get("TIDEMARK_SOURCE") or os.path.join(HERE, "..", "..")
PROGRAM = os.path.abspath(os.environ.get("TIDEMARK_BIN") or os.path.join(SOURCE, "build", "tidemark"))
MORE = os.path.join(os.environ.get("TIDEMARK_DATA") or os.path.join(SOURCE, "..", "shared"), "traces")
SYSTEM_PYTHON = "/usr/bin/python3"
WAIT_S = 60
PLOT_LEFT, PLOT_RIGHT, PLOT_BOTTOM = 74, 12, 20
SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def leave(why):
    print(why)
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)


try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    # Debian's package is for the system's Python alone, which need not be the first of the PATH.
    if os.access(SYSTEM_PYTHON, os.X_OK) and os.environ.get("TIDEMARK_PAGE_PYTHON") != SYSTEM_PYTHON:
        os.environ["TIDEMARK_PAGE_PYTHON"] = SYSTEM_PYTHON
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    leave("selenium is not there (./dev setup browser): the page is not tested in a browser")


class Skip(Exception):
    pass


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def equal(got, want, text="it"):
    check(got == want, f"{text} is {got!r}, not {want!r}")


def find_program(*names):
    for name in names:
        for folder in os.environ.get("PATH", "").split(":") + ["/usr/bin", "/usr/lib/chromium"]:
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
    return None


def recording(name):
    for folder in (MORE, os.path.join(SOURCE, "tests", "data")):
        for ending in (".pickle.xz", ".pickle", ".tide"):
            path = os.path.join(folder, name + ending)
            if os.path.exists(path):
                return path
    raise Skip(f"{name} is not there")


def start_browser():
    browser, driver = find_program("chromium", "chromium-browser", "google-chrome"), find_program("chromedriver")
    if not browser or not driver:
        leave("chromium or its driver is not there (./dev setup browser): the page is not tested in a browser")
    # The driver is asked on the loopback address, never through a proxy.
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "localhost,127.0.0.1"
    why = ""
    # Root has no sandbox, and in a container nobody may have one.
    for more in ([["--no-sandbox"]] if os.geteuid() == 0 else [[], ["--no-sandbox"]]):
        try:
            return webdriver.Chrome(service=Service(driver), options=browser_options(browser, more))
        except Exception as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
    leave(f"the browser does not start ({why}): the page is not tested in it")


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
        raise Skip("the pickled recording is not there")
    return truth.load(path)["device_traces"][0]


class Page:
    """A page that is open in the browser."""

    def __init__(self, driver, folder):
        self.driver, self.folder = driver, folder

    def open(self, name, hash_="", more=(), paths=None, options=()):
        paths = paths or [recording(one) for one in (name, *more)]
        page = os.path.join(self.folder, "-".join((name, *more, *options)) + ".html")
        if not os.path.exists(page):
            done = subprocess.run([PROGRAM, "view", *options, *paths, "-o", page], capture_output=True, text=True)
            equal(done.returncode, 0, f"the status of view ({done.stderr!r})")
        self.path = paths[0]
        self.go("file://" + page + hash_)

    def go(self, address):
        self.driver.get("about:blank")
        self.driver.get(address)
        self.wait(lambda: self.run("return document.documentElement.dataset.ready") == "true", "the data is read")
        self.wait(lambda: self.run("return window.tidemark.link.waiting.size") == 0, "the data is shown")

    def run(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def wait(self, condition, text):
        waiting = WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException])
        return waiting.until(lambda _: condition(), f"in {WAIT_S} s it never happened that {text}")

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

    def mouse(self, canvas, *points):
        """Moves to the first point (pixels from the top left), presses, moves to the others, releases."""
        box = canvas.rect
        chain = ActionChains(self.driver, duration=20)
        for i, (x, y) in enumerate(points):
            chain.move_to_element_with_offset(canvas, round(x - box["width"] / 2), round(y - box["height"] / 2))
            if i == 0:
                chain.click_and_hold()
        chain.release().perform()

    def keys(self, element, *keys):
        self.run("arguments[0].focus()", element)
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab(self, name):
        self.click(f"[data-tab='{name}']")

    def report(self):
        done = subprocess.run([PROGRAM, "report", "--json", self.path], capture_output=True, text=True)
        return json.loads(done.stdout)

    def check_console(self):
        bad = [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "ERROR")]
        check(not bad, f"the console has errors: {bad}")


def size_text(count):
    power, names = 0, ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and power < 4:
        count, power = count / 1024, power + 1
    return f"{count:.2f} {names[power]}" if power else f"{round(count)} B"


def main(names):
    """Runs the functions test_... among names; arguments choose those whose name has one of them."""
    wanted = sys.argv[1:]
    tests = [(name, test) for name, test in names.items() if name.startswith("test_")]
    tests = [(name, test) for name, test in tests if not wanted or any(part in name for part in wanted)]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    driver = start_browser()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, test in tests:
                page = Page(driver, folder)
                began = time.monotonic()
                try:
                    driver.get_log("browser")
                    test(page)
                    page.check_console()
                    counts["passed"] += 1
                    print(f"{name}: ok ({time.monotonic() - began:.0f} s)", flush=True)
                except Skip as why:
                    print(f"{name}: skipped, {why}")
                    counts["skipped"] += 1
                except Exception as error:
                    print(f"{name}: FAILED: {type(error).__name__}: {error}")
                    counts["failed"] += 1
    finally:
        driver.quit()
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    sys.exit(1 if counts["failed"] else 77 if not counts["passed"] else 0)
