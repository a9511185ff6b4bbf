"""The Perfetto button in a real browser: what the viewer gets, who gets nothing, and what the
learner is told.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from typing import Any

import pytest

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


def test_a_late_viewer_is_reported_and_still_gets_the_trace(
    browser: Any, notebook: Site, viewer: Site
) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/?late=2000", patience_s=1))
    press(browser)
    wait_for_outcome(browser, "silent")
    wait_for_outcome(browser, "sent")
    until(lambda: viewer.received, "the arrival of the trace")


def test_a_silent_viewer_leads_to_the_timeline(browser: Any, notebook: Site, viewer: Site) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/?mute", patience_s=0.3))
    press(browser)
    wait_for_outcome(browser, "silent")
    until(lambda: "did not answer" in status(browser), "giving up")
    assert "timeline below" in status(browser)
    assert browser.find_element("css selector", "[data-action=open]").is_enabled()
    assert viewer.noticed > 0
    assert viewer.received == []


def test_an_unreachable_viewer_leads_to_the_timeline(browser: Any, notebook: Site) -> None:
    show_buttons(browser, notebook, button("https://ui.perfetto.dev/", patience_s=0.3))
    press(browser)
    until(lambda: "did not answer" in (outcome(browser) and status(browser)), "giving up")
    assert "timeline below" in status(browser)


def test_a_viewer_that_leads_to_another_origin_gets_nothing(
    browser: Any, notebook: Site, viewer: Site, stranger: Site
) -> None:
    page = viewer.serve("/moved", "", Location=f"{stranger.address}/")
    show_buttons(browser, notebook, button(page, patience_s=0.5))
    press(browser)
    until(lambda: "did not answer" in (outcome(browser) and status(browser)), "giving up")
    assert (stranger.noticed, stranger.received) == (0, [])


def test_an_answer_from_elsewhere_is_no_answer(
    browser: Any, notebook: Site, viewer: Site, stranger: Site
) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/?mute"))
    shout = stranger.serve(
        "/shout", "<script>setInterval(() => parent.postMessage('PONG', '*'), 20)</script>"
    )
    browser.execute_script(
        "document.body.append(Object.assign(document.createElement('iframe'), {src:"
        " arguments[0]}))",
        shout,
    )
    browser.execute_script(
        "window.heard = 0; addEventListener('message', (event) => window.heard += event.data ==="
        " 'PONG')"
    )
    press(browser)
    until(lambda: viewer.noticed, "the first PING")
    browser.switch_to.window(browser.window_handles[0])
    browser.execute_script("postMessage('PONG', '*')")
    until(lambda: browser.execute_script("return window.heard") > 5, "answers from strangers")
    assert outcome(browser) == "waiting"
    assert (viewer.received, stranger.received) == ([], [])


def test_a_closed_tab_is_reported(browser: Any, notebook: Site, viewer: Site) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/?mute"))
    press(browser)
    until(lambda: len(browser.window_handles) == 2, "the new tab")
    browser.switch_to.window(browser.window_handles[1])
    browser.close()
    wait_for_outcome(browser, "closed")


def test_a_server_that_isolates_its_pages_is_reported(
    browser: Any, notebook: Site, viewer: Site
) -> None:
    show_buttons(
        browser, notebook, button(f"{viewer.address}/"), Cross_Origin_Opener_Policy="same-origin"
    )
    press(browser)
    wait_for_outcome(browser, "closed")
    assert "Cross-Origin-Opener-Policy" in status(browser)
    assert viewer.received == []


def test_the_pop_up_blocker_is_reported(browser: Any, notebook: Site, viewer: Site) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/"))
    browser.execute_script(
        "document.querySelector('[data-action=open]').click()"
    )  # no gesture of a user
    wait_for_outcome(browser, "blocked")
    assert "allow pop-ups" in status(browser)
    press(browser)  # a real click is allowed
    wait_for_outcome(browser, "sent")


def test_a_frame_without_pop_ups_such_as_vs_code_says_so(
    browser: Any, notebook: Site, viewer: Site
) -> None:
    inner = notebook.serve("/inner", button(f"{viewer.address}/")._repr_html_())
    allowed = "allow-scripts allow-same-origin allow-downloads"
    browser.get(
        notebook.serve(
            "/notebook", f"<iframe width=900 height=300 sandbox='{allowed}' src='{inner}'></iframe>"
        )
    )
    browser.switch_to.frame(0)
    browser.find_element("css selector", "[data-action=open]").click()
    until(lambda: "VS Code" in status(browser), "the message")
    assert len(browser.window_handles) == 1


def test_save_gives_the_same_bytes(browser: Any, notebook: Site) -> None:
    show_buttons(browser, notebook, button("https://ui.perfetto.dev/", name="saved trace.json.gz"))
    press(browser, "save")
    saved = browser.downloads / "saved trace.json.gz"
    until(saved.is_file, "the download")
    assert saved.read_bytes() == CONTENT


@pytest.mark.parametrize(("keep_api_open", "tabs"), [(True, 2), (False, 3)])
def test_a_second_press_uses_the_same_tab_only_if_it_still_listens(
    browser: Any, notebook: Site, viewer: Site, keep_api_open: bool, tabs: int
) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/", keep_api_open=keep_api_open))
    for count in (1, 2):
        press(browser)
        until(lambda count=count: len(viewer.received) == count, f"trace {count}")
    assert [trace["keepApiOpen"] for trace in viewer.received] == [keep_api_open] * 2
    assert len(browser.window_handles) == tabs


def test_two_buttons_send_their_own_traces(browser: Any, notebook: Site, viewer: Site) -> None:
    page = f"{viewer.address}/"
    show_buttons(
        browser,
        notebook,
        button(page, content=b"\x1f\x8bfirst"),
        button(page, content=b"\x1f\x8bsecond"),
    )
    press(browser, place=1)
    wait_for_outcome(browser, "sent", place=1)
    until(lambda: viewer.received, "the arrival of the trace")
    assert [trace["content"] for trace in viewer.received] == [b"\x1f\x8bsecond"]
    assert outcome(browser, place=0) == "ready"


def test_names_cannot_break_out_of_the_page(browser: Any, notebook: Site, viewer: Site) -> None:
    show_buttons(browser, notebook, button(f"{viewer.address}/", title=HOSTILE, name=HOSTILE))
    press(browser)
    wait_for_outcome(browser, "sent")
    until(lambda: viewer.received, "the arrival of the trace")
    shown = HOSTILE.translate(dict.fromkeys(map(ord, "\x00\x1b\u2028\u202e"), "\ufffd"))
    assert viewer.received[0]["title"] == viewer.received[0]["fileName"] == shown
    assert browser.find_element("css selector", "strong").text == shown
    assert browser.execute_script("return [window.broken, document.images.length]") == [None, 0]


def test_without_scripts_the_page_says_what_to_do(browser: Any, notebook: Site) -> None:
    show_buttons(
        browser,
        notebook,
        button("https://ui.perfetto.dev/"),
        Content_Security_Policy="script-src 'none'",
    )
    assert "run this cell again" in status(browser)
    assert not browser.find_element("css selector", "[data-action=open]").is_enabled()
