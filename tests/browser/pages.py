"""A page of the book in the browser of the tests, and what axe-core finds on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 390)]
"""Themes, and widths of the window in CSS pixels."""

_FOUND = """
const done = arguments[arguments.length - 1];
const more = {'label-content-name-mismatch': {enabled: true}};
const rules = {...more, ...arguments[0]};
axe.run(document, {resultTypes: ['violations'], rules}).then(result => done(result.violations
    .map(found => `${found.impact}: ${found.id}, ${found.nodes.length} times, first `
        + `${found.nodes[0].html.slice(0, 160)} ${found.nodes[0].any[0]?.message ?? ''}`)));
"""
"""The rule that axe-core 4.12 leaves out unless asked: what is announced has to hold what is read
(WCAG 2.5.3).
"""

_CONTRAST = 4.5
"""Least contrast of a text with its ground (WCAG 2.2, criterion 1.4.3)."""

_HARD_TO_READ = """
const [inside, but, least] = arguments;
const numbers = color => color.match(/[\\d.]+/g).map(Number);
const luminance = color => color.slice(0, 3).map(value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
const ground = element => {
    if (!element) return [255, 255, 255];
    const own = numbers(getComputedStyle(element).backgroundColor), cover = own[3] ?? 1;
    if (cover === 1) return own;
    return ground(element.parentElement).slice(0, 3)
        .map((below, place) => below + cover * (own[place] - below));
};
const contrast = element => {
    const both = [numbers(getComputedStyle(element).color), ground(element)];
    const [dark, light] = both.map(luminance).sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
};
const texts = [...document.querySelectorAll(`:is(${inside}) *`)]
    .filter(element => element.checkVisibility() && !element.closest(but))
    .filter(element => [...element.childNodes]
        .some(node => node.nodeType === 3 && node.data.trim()));
const hard = texts.filter(element => contrast(element) < least);
hard[0]?.scrollIntoView();
return [texts.length, hard.map(element => contrast(element).toFixed(1) + ': ' \
+ element.outerHTML.slice(0, 160))];
"""


def show(browser: Any, address: str, scheme: str, width: int) -> None:
    """Open a page in a theme, in a window of this width in CSS pixels."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)


def barriers(browser: Any, *, contrast: bool = True) -> list[str]:
    """What axe-core finds on the page that is open, whatever its weight; contrast takes it five
    seconds a lesson.
    """
    import axe_playwright_python

    browser.execute_script(
        (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    )
    return browser.execute_async_script(_FOUND, {"color-contrast": {"enabled": contrast}})


def hard_to_read(browser: Any, inside: str, but: str) -> tuple[int, list[str]]:
    """How many texts the elements of one selector have outside of the other's, and those with too
    little contrast.
    """
    return tuple(browser.execute_script(_HARD_TO_READ, inside, but, _CONTRAST))


def overhang(browser: Any) -> int:
    """Pixels by which the page that is open is wider than its window; none if it is 0 or less."""
    return browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
