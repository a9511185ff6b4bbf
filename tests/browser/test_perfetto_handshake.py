"""The Perfetto button in a real browser: what the viewer gets, who gets nothing, and what the
learner is told.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from typing import Any

from proflab.perfetto_button import PerfettoButton
from proflab.perfetto_trace import Trace
from tests.browser.conftest import Site

CONTENT = gzip.compress(bytes(range(256)) * 300, mtime=0)
"""Every byte value, so that a slip in the encoding shows."""

HOSTILE = (
    "</script><script>window.broken=1</script>\"'><img src=x"
    " onerror='window.broken=2'>\x00\x1b[31m\u2028\u202e`&amp;"
)


def button(page: str, **options: Any) -> PerfettoButton:
    values = {"title": "A trace", "patience_s": 5.0, **options}
    content = values.pop("content", CONTENT)
    return PerfettoButton(Trace(values.pop("name", "trace.json.gz"), content), page, **values)


def show_buttons(browser: Any, notebook: Site, *buttons: PerfettoButton, **headers: str) -> None:
    body = "".join(item._repr_html_() for item in buttons)
    browser.get(
        notebook.serve("/notebook", f"<!doctype html><meta charset='utf-8'><body>{body}", **headers)
    )


def press(browser: Any, action: str = "open", place: int = 0) -> None:
    browser.switch_to.window(browser.window_handles[0])
    browser.find_elements("css selector", f"[data-action={action}]")[place].click()


def until(condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {seconds} s")


def outcome(browser: Any, place: int = 0) -> str:
    browser.switch_to.window(browser.window_handles[0])
    return browser.find_elements("css selector", "[data-outcome]")[place].get_attribute(
        "data-outcome"
    )


def status(browser: Any) -> str:
    return browser.find_element("css selector", "[role=status]").text


def wait_for_outcome(browser: Any, wanted: str, place: int = 0) -> None:
    until(lambda: outcome(browser, place) == wanted, f"the outcome {wanted!r}")


def test_the_viewer_gets_exactly_these_bytes_once(
    browser: Any, notebook: Site, viewer: Site
) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/v46.0-35b3d9845/?late=400"))
    press(browser)
    wait_for_outcome(browser, "sent")
    until(lambda: viewer.received, "the arrival of the trace")
    expected = {
        "title": "A trace",
        "fileName": "trace.json.gz",
        "keepApiOpen": False,
        "localOnly": True,
    }
    assert viewer.received == [{**expected, "content": CONTENT}]
    assert notebook.address in status(browser)
    assert browser.find_element("css selector", "[data-action=open]").is_enabled()


def test_a_viewer_that_leads_to_another_origin_gets_nothing(
    browser: Any, notebook: Site, viewer: Site, third_party: Site
) -> None:
    page = viewer.serve("/moved", "", Location=f"{third_party.address}/")
    show_buttons(browser, notebook, button(page, patience_s=0.5))
    press(browser)
    wait_for_outcome(browser, "silent")
    open_button = browser.find_element("css selector", "[data-action=open]")
    until(open_button.is_enabled, "giving up")
    assert (third_party.noticed, third_party.received) == (0, [])


def test_names_cannot_break_out_of_the_page(browser: Any, notebook: Site, viewer: Site) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/", title=HOSTILE, name=HOSTILE))
    press(browser)
    wait_for_outcome(browser, "sent")
    until(lambda: viewer.received, "the arrival of the trace")
    shown = HOSTILE.translate(dict.fromkeys(map(ord, "\x00\x1b\u2028\u202e"), "\ufffd"))
    assert viewer.received[0]["title"] == viewer.received[0]["fileName"] == shown
    assert browser.find_element("css selector", "strong").text == shown
    assert browser.execute_script("return [window.broken, document.images.length]") == [None, 0]
