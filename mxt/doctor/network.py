"""The way to the network: routes and proxies. Nobody is called, and no secret is shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from mxt.doctor.finding import OK, WARN, Finding

_PROXIES = ("https_proxy", "http_proxy", "all_proxy")


def network_findings() -> Iterator[Finding]:
    proxies = [
        (name, value) for name in _PROXIES for n in (name, name.upper()) if (value := os.environ.get(n))
    ]
    if proxies:
        shown = ", ".join(f"{name} is {_host(value)}" for name, value in dict(proxies).items())
        yield Finding("network", OK, f"through a proxy: {shown}")
    elif has_route():
        yield Finding("network", OK, "there is a route, and no proxy is set")
    else:
        mend = "stages that download fail; set https_proxy, or build them once where there is a network"
        yield Finding("network", WARN, "no route and no proxy", mend)


def reachable() -> bool:
    """Whether an action that needs the network could have one."""
    return has_route() or any(os.environ.get(n) or os.environ.get(n.upper()) for n in _PROXIES)


def has_route() -> bool:
    """A default route, of either protocol."""
    for path, column, default in (("/proc/net/route", 1, "00000000"), ("/proc/net/ipv6_route", 0, "0" * 32)):
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                for line in file:
                    words = line.split()
                    if len(words) > column and words[column] == default and words[-1] != "lo":
                        return True
        except OSError:
            continue
    return False


def _host(value: str) -> str:
    """host:port of a proxy: its address may hold a password."""
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    except ValueError:
        return "set, and no address"
