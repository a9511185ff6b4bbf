"""A transfer over HTTP that goes on where it was cut off."""

from __future__ import annotations

import http.client
import os
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from cifar_train.console import say
from cifar_train.data.download_progress import show_progress
from cifar_train.errors import UserError

PIECE = 1 << 18
"""Bytes read at once, 256 KiB."""


class _TransferError(Exception):
    """The connection failed; what has arrived is in the partial file."""


class ResumingDownloader:
    """A downloader for pooch: collects the file in `part`, then moves it to the name pooch asks for.

    An interrupted transfer is taken up again as long as every attempt brings something,
    also in a later run: `part` is kept. A server that does not know HTTP ranges
    (RFC 9110, section 14) sends everything again. Takes http, https, ftp and file
    addresses. Raises UserError for whatever the network does wrong.
    """

    def __init__(self, part: Path, timeout: float, bar: bool | None, advice: str) -> None:
        self._part = part
        self._timeout = timeout
        self._bar = bar
        self._advice = advice

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Fetch `url` into `output_file`; pooch hands itself over as third argument."""
        while True:
            before = self._size()
            try:
                self._transfer(url)
                break
            except _TransferError as error:
                if self._size() <= before:
                    raise UserError(self._failure(url, str(error))) from error
                say(f"connection lost at {self._size() / 1e6:.1f} MB ({error}); going on from there")
        os.replace(self._part, output_file)

    def _size(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _failure(self, url: str, reason: str) -> str:
        kept = f"; {self._size() / 1e6:.1f} MB are kept in {self._part}" if self._size() else ""
        return f"{url} could not be fetched: {reason}{kept}; {self._advice}"

    def _transfer(self, url: str) -> None:
        """Ask for what is missing and append it to the partial file."""
        done = self._size()
        try:
            response = self._open(url, done)
        except HTTPError as error:
            error.close()
            if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise UserError(self._failure(url, f"the server answered {error.code} {error.reason}")) from error
            # The partial file is not shorter than the whole one, so it cannot be its beginning.
            self._part.unlink()
            done = 0
            response = self._open(url, done)
        with response:
            if done and response.status != http.client.PARTIAL_CONTENT:
                say("the server cannot go on in the middle; starting again")
                done = 0
            self._receive(response, done)

    def _open(self, url: str, done: int) -> Any:
        headers = {"User-Agent": "cifar_train", "Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        try:
            return urlopen(Request(url, headers=headers), timeout=self._timeout)
        except HTTPError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise _TransferError(self._reason(url, error)) from error
        except ValueError as error:
            raise UserError(self._failure(url, f"not an address ({error})")) from error

    def _receive(self, response: Any, done: int) -> None:
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with self._part.open("ab" if done else "wb") as target, show_progress(total, done, self._bar) as progress:
            while piece := self._read(response):
                target.write(piece)
                progress.update(len(piece))
        if total is not None and self._size() < total:
            raise _TransferError(f"the connection was closed after {self._size():,} of {total:,} bytes")

    def _read(self, response: Any) -> bytes:
        try:
            return response.read(PIECE)
        except (OSError, http.client.HTTPException) as error:
            raise _TransferError(self._reason(response.url, error)) from error

    def _reason(self, url: str, error: Exception) -> str:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, TimeoutError):
            return f"time-out, {urlsplit(url).hostname} sent nothing for {self._timeout:g} s"
        text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        host = urlsplit(url).hostname
        return f"no connection to {host} ({text})" if host else text
