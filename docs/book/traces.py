"""Traces that figures open in Perfetto, as files of the site with a link for Perfetto.

In a notebook, the button contains the trace, so it doesn't need a server. A site has an address, so
each trace is stored once as a file, and the page stays small. book.js makes the link from that
address.
"""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from html import escape, unescape
from pathlib import Path

from proflab.display import size

FOLDER = "_traces"

BUTTON = re.compile(
    r'<div id="(proflab-perfetto-[0-9a-f]+)" data-config="([^"]*)" data-trace="([^"]*)">'
    r'.*?</div><script>.*?\("\1"\);</script>',
    re.DOTALL,
)
"""Pattern of the output of `proflab.perfetto_button`, including its script."""

_ODD = re.compile(r"[^\w.-]+")


def with_files(page: str, html: Path, up: str) -> str:
    """Return a page whose traces are files in the site `html`. `up` is the path from the page to
    it.
    """
    return BUTTON.sub(lambda found: _linked(found[2], found[3], html, up), page)


def _linked(config: str, trace: str, html: Path, up: str) -> str:
    given = json.loads(unescape(config))
    content = base64.b64decode(trace)
    name = _ODD.sub("-", given["fileName"])
    # Different traces may have the same name. Equal traces are stored once.
    address = f"{FOLDER}/{sha256(content).hexdigest()[:8]}-{name}"
    (html / FOLDER).mkdir(exist_ok=True)
    (html / address).write_bytes(content)
    viewer = escape(given["page"])
    return (
        f'<div class="perfetto" data-trace="{up}{address}">'
        f"<p><strong>{escape(given['title'])}</strong>, a trace of {size(len(content))}</p>"
        f'<p><a class="open" target="_blank" rel="noopener" data-viewer="{viewer}" hidden>'
        f'Open in Perfetto</a> <a href="{up}{address}" download="{name}">Save the trace</a></p>'
        f'<p>You can also drop a saved trace on <a href="{viewer}">Perfetto\'s page</a>. The trace'
        " isn't uploaded.</p></div>"
    )
