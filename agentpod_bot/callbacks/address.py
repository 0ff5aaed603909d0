"""Which addresses a callback may go to. Pure; the same judgement for every way in which an address came."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import Enum, auto

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

OWN_NETWORKS: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "::1/128",
        "fc00::/7",
    )
)
"""Loopback, private use, shared space of a provider, unique local (RFC 1918, 6598, 4193)."""
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
    )
)
"""Where cloud providers hand a machine its own credentials; some lie in networks that may be allowed."""
GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 addresses as an IPv6-only network writes them (RFC 6052)."""


class Reach(Enum):
    """How far away an address is."""

    PUBLIC = auto()
    OWN = auto()
    """This machine, or a network that only its neighbours reach."""
    NOWHERE = auto()
    """Link-local, multicast, unspecified, metadata, reserved: never a target."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a target may be: on our own networks or not; in clear text only there."""

    own_networks: bool
    in_clear: bool

    def __call__(self, address: Address) -> bool:
        """Whether a connection to this address may be made."""
        match reach(address):
            case Reach.PUBLIC:
                return not self.in_clear
            case Reach.OWN:
                return self.own_networks
            case Reach.NOWHERE:
                return False


def read(text: str) -> Address:
    """The address in a text, with or without a zone. Raises ValueError for anything else."""
    return ipaddress.ip_address(text)


def reach(address: Address) -> Reach:
    """How far away an address is; one that carries an IPv4 address is never further than that one."""
    if address in METADATA:
        return Reach.NOWHERE
    if isinstance(address, ipaddress.IPv6Address):
        return _reach_v6(address)
    if any(address in network for network in OWN_NETWORKS):
        return Reach.OWN
    return Reach.PUBLIC if _is_ordinary(address) else Reach.NOWHERE


def _reach_v6(address: ipaddress.IPv6Address) -> Reach:
    if address.ipv4_mapped is not None:
        # No name server says so of a public host: it is a way past a check.
        return Reach.NOWHERE if reach(address.ipv4_mapped) is Reach.NOWHERE else Reach.OWN
    if address.sixtofour is not None:
        return reach(address.sixtofour) if reach(address.sixtofour) is Reach.PUBLIC else Reach.NOWHERE
    if address in NAT64:
        return reach(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if any(address in network for network in OWN_NETWORKS):
        # a zone says through which interface, which only a link-local address needs
        return Reach.OWN if address.scope_id is None else Reach.NOWHERE
    return Reach.PUBLIC if address in GLOBAL_UNICAST and _is_ordinary(address) else Reach.NOWHERE


def _is_ordinary(address: Address) -> bool:
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_link_local)
