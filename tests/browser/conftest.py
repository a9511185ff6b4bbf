"""A real browser without a screen, and two small web servers, which are two origins."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.conftest import REPOSITORY, require
from tidyprof_tests.patience import PATIENCE_S

RECEIVER = Path(__file__).with_name("receiver.html")
SCREENSHOTS = REPOSITORY / "build/screenshots"

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # which root in a container can't have
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--window-size=1300,1000",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep a picture of what the browser showed when a test failed."""
    report = yield
    if report.when == "call" and report.failed and "browser" in item.funcargs:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "_", item.name)
        item.funcargs["browser"].save_screenshot(str(SCREENSHOTS / f"{name}.png"))
    return report


@dataclass
class Site:
    """A web server on 127.0.0.1.

    pages    -- path -> (headers, HTML) that it serves; every other path gets the receiver, a fake
                of Perfetto's page.
    received -- what the receiver was sent: one dictionary per trace, its bytes under `content`.
    noticed  -- number of messages of any kind that reached a receiver of this site.
    """

    address: str = ""
    pages: dict[str, tuple[dict[str, str], str]] = field(default_factory=dict)
    received: list[dict[str, Any]] = field(default_factory=list)
    noticed: int = 0

    def serve(self, path: str, page: str, **headers: str) -> str:
        """Serve a page under a path, with headers whose names have `_` for `-`; returns its
        address.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = (named, page)
        return f"{self.address}{path}"


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers, page = site.pages.get(self.path.partition("?")[0], ({}, RECEIVER.read_text()))
            self._answer(302 if "Location" in headers else 200, headers, page.encode())

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/noticed":
                site.noticed += 1
            else:
                site.received.append(
                    {**json.loads(unquote(self.headers["X-Fields"])), "content": content}
                )
            self._answer(204, {}, b"")

        def _answer(self, code: int, headers: dict[str, str], page: bytes) -> None:
            self.send_response(code)
            for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def _site() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    site.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def notebook() -> Iterator[Site]:
    """The origin of the notebook."""
    yield from _site()


@pytest.fixture
def viewer() -> Iterator[Site]:
    """The origin of the fake viewer."""
    yield from _site()


@pytest.fixture
def third_party() -> Iterator[Site]:
    """An origin that has no business here."""
    yield from _site()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium without a screen, with its pop-up blocker on, which can reach nothing but
    127.0.0.1.
    """
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    require(
        all(programs.values()) and find_spec("selenium") is not None,
        "a browser: chromium, chromedriver, selenium",
    )
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.accept_insecure_certs = True  # of a server of a test
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    options.add_experimental_option("excludeSwitches", ["disable-popup-blocking"])
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options, webdriver.ChromeService(programs["chromedriver"]))
    driver.set_script_timeout(PATIENCE_S)
    driver.set_page_load_timeout(PATIENCE_S)
    driver.downloads = downloads
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """The browser with one empty tab; `browser.downloads` is the folder where it saves files."""
    first, *_ = chromium.window_handles
    chromium.switch_to.window(first)
    chromium.get("about:blank")
    yield chromium
    for handle in chromium.window_handles:
        if handle != first:
            chromium.switch_to.window(handle)
            chromium.close()
    chromium.switch_to.window(first)
