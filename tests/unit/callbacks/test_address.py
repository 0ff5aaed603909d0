from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.callbacks.address import OWN_NETWORKS, Allowed, Reach, reach, read

if TYPE_CHECKING:
    import ipaddress

PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::8.8.8.8", "2002:808:808::1")
OWN = (
    "127.0.0.1",
    "127.255.255.254",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd12:3456::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
)
NOWHERE = (
    "0.0.0.0",  # noqa: S104 - to be refused
    "0.1.2.3",
    "169.254.1.1",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::",
    "::ffff:169.254.169.254",
    "::ffff:0.0.0.0",
    "64:ff9b::169.254.169.254",
    "::127.0.0.1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "2001:0:5ef5:79fd::1",
    "fe80::1",
    "fe80::1%eth0",
    "fd12:3456::1%eth0",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "4000::1",
)
EVERYWHERE = [(text, Reach.PUBLIC) for text in PUBLIC] + [(text, Reach.OWN) for text in OWN]
EVERYWHERE += [(text, Reach.NOWHERE) for text in NOWHERE]


@pytest.mark.parametrize(("text", "expected"), EVERYWHERE)
def test_an_address_is_as_far_away_as_it_is(text: str, expected: Reach) -> None:
    assert reach(read(text)) is expected


@pytest.mark.parametrize("text", [*OWN, *NOWHERE])
def test_a_target_leads_to_public_addresses_only_unless_more_is_allowed(text: str) -> None:
    assert not Allowed(own_networks=False, in_clear=False)(read(text))


@pytest.mark.parametrize("text", NOWHERE)
@pytest.mark.parametrize("in_clear", [True, False])
def test_no_permission_leads_to_metadata_link_local_or_multicast(text: str, *, in_clear: bool) -> None:
    assert not Allowed(own_networks=True, in_clear=in_clear)(read(text))


@pytest.mark.parametrize("text", OWN)
def test_our_own_networks_can_be_allowed(text: str) -> None:
    assert Allowed(own_networks=True, in_clear=False)(read(text))
    assert Allowed(own_networks=True, in_clear=True)(read(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_clear_text_never_leaves_our_own_networks(text: str) -> None:
    assert Allowed(own_networks=True, in_clear=False)(read(text))
    assert not Allowed(own_networks=True, in_clear=True)(read(text))


@given(st.ip_addresses(v=4))
def test_how_an_ipv4_address_is_written_in_ipv6_brings_it_no_nearer(address: ipaddress.IPv4Address) -> None:
    allowed = Allowed(own_networks=False, in_clear=False)
    for carried in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert not allowed(read(carried)) or allowed(address)


@given(st.one_of(st.ip_addresses(), st.sampled_from(OWN_NETWORKS).map(lambda network: network[-1])))
def test_only_global_addresses_are_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if reach(address) is Reach.PUBLIC:
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_loopback


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "127.0.0.1:80"])
def test_what_is_no_address_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear"):
        read(text)
