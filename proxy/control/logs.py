"""The log of aiohttp's servers, without faults in a client's HTTP: the client gets those as the answer."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError


class _NotOfClients(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (HttpProcessingError, ConnectionError))


def logger(name: str) -> logging.Logger:
    """A logger for `web.AppRunner(logger=...)`."""
    found = logging.getLogger(name)
    if not any(isinstance(each, _NotOfClients) for each in found.filters):
        found.addFilter(_NotOfClients())
    return found
