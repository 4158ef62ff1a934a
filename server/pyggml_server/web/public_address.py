"""Which addresses a client may have this server connect to: those that it could reach by itself. Any thread."""

from __future__ import annotations

import asyncio
import ipaddress
import socket


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet, and not of this machine or network, however it is written."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None) or _translated(ip)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


async def addresses_of(host: str, port: int) -> list[str]:
    """The addresses that a name stands for. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")


def _translated(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _TRANSLATED else None
