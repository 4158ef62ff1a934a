"""Which addresses of the network this server connects to for a client."""

from __future__ import annotations

import asyncio

import pytest
from pyggml_server.web.public_address import addresses_of, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # where clouds keep their secrets
        "100.64.0.1",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2002:a00:1::1",
    ],
)
def test_an_address_of_this_machine_or_network_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f000001", "127.1", "localhost"])
def test_a_name_is_judged_by_what_it_stands_for_however_it_is_written(host: str) -> None:
    assert not any(map(is_public, asyncio.run(addresses_of(host, 80))))
