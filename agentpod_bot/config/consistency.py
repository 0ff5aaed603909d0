"""What must hold between values that are each right by themselves.

The loader asks about what it could read of a faulty file, so that every fault is reported
at once; the `Settings` model asks again, so that no code can build one that breaks a rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.config.fault import Fault, nearest, shown
from agentpod_bot.config.values import Listen, duration_text, webhook_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import SecretStr

    from agentpod_bot.core.policy import Escalation


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The values of each section by attribute name; what could not be read is left out.

    `route_names` are all that were written, also those of routes that could not be read.
    """

    homeserver: Mapping[str, Any]
    http: Mapping[str, Any]
    clients: Mapping[str, Mapping[str, Any]]
    routes: Mapping[str, Mapping[str, Any]]
    requests: Mapping[str, Any]
    e2e: Mapping[str, Any]
    route_names: frozenset[str]


def faults(parts: Parts) -> Iterator[Fault]:
    """Every rule between values that the parts break."""
    yield from endpoint_faults(parts.http)
    yield from deadline_faults(parts.requests)
    yield from route_faults(parts)
    yield from approver_faults(parts)
    yield from escalation_faults(parts)
    yield from requester_faults(parts)
    yield from quorum_faults(parts)
    yield from token_faults(parts)
    yield from session_faults(parts.homeserver)
    yield from callback_faults(parts)
    yield from encryption_faults(parts)


def endpoint_faults(http: Mapping[str, Any]) -> Iterator[Fault]:
    """One place to listen, and only knowingly one that other machines reach."""
    listen, socket = http.get("listen"), http.get("socket")
    if listen is not None and socket is not None:
        yield Fault(("http", "socket"), "is given beside `http.listen`; the daemon listens in one place, so remove one")
    if "listen" in http and "socket" in http and listen is None and socket is None:
        yield Fault(("http", "listen"), "neither `http.listen` nor `http.socket` says where to listen")
    if isinstance(listen, Listen) and not listen.is_loopback and http.get("allow_remote") is False:
        reason = f"{shown(str(listen))} can be reached from other machines; that needs `http.allow_remote: true`"
        yield Fault(("http", "listen"), reason)


def deadline_faults(requests: Mapping[str, Any]) -> Iterator[Fault]:
    """The usual time to live is one that may be asked for."""
    usual, most = requests.get("time_to_live_ms"), requests.get("max_time_to_live_ms")
    if usual is not None and most is not None and usual > most:
        reason = f"{duration_text(usual)} is more than `requests.max_time_to_live`, which is {duration_text(most)}"
        yield Fault(("requests", "time_to_live"), reason)


def route_faults(parts: Parts) -> Iterator[Fault]:
    """Every route that a client may use exists."""
    for client, values in parts.clients.items():
        for index, route in enumerate(values.get("routes", ())):
            if route not in parts.route_names:
                reason = f"{shown(route)} is no route of `routes`{nearest(route, parts.route_names)}"
                yield Fault(("clients", client, "routes", index), reason)


def approver_faults(parts: Parts) -> Iterator[Fault]:
    """No machine account approves: neither the bot itself nor a known agent."""
    own, agents = parts.homeserver.get("user_id"), parts.homeserver.get("agents", ())
    for route, values in parts.routes.items():
        for index, approver in enumerate(values.get("approvers", ())):
            at = ("routes", route, "approvers", index)
            if approver == own:
                yield Fault(at, f"{shown(approver)} is the bot's own account; it would answer itself")
            elif approver in agents:
                yield Fault(at, f"{shown(approver)} is one of `homeserver.agents`, whose messages are never answers")


def escalation_faults(parts: Parts) -> Iterator[Fault]:
    """A question is asked again on another route, in another room."""
    for route, values in parts.routes.items():
        escalation: Escalation | None = values.get("escalate")
        if escalation is None:
            continue
        at, to = ("routes", route, "escalate"), escalation.to
        if to not in parts.route_names:
            yield Fault(at, f"{shown(to)} is no route of `routes`{nearest(to, parts.route_names - {route})}")
        elif to == route:
            yield Fault(at, f"{shown(to)} is this route itself; name another one")
        elif "room" in values and values["room"] == parts.routes.get(to, {}).get("room"):
            yield Fault(at, f"{shown(to)} has the same room as this route; a question is asked once in a room")


def asked_on(parts: Parts, client: str) -> list[str]:
    """The routes on which questions of a client may be asked: its own, and those that they may be asked on next."""
    own = list(parts.clients[client].get("routes", ()))
    escalations = [parts.routes.get(route, {}).get("escalate") for route in own]
    return own + [each.to for each in escalations if each is not None and each.to not in own]


def requester_faults(parts: Parts) -> Iterator[Fault]:
    """Where the requester may not approve, it is known who that is, and it is a person."""
    own, agents = parts.homeserver.get("user_id"), parts.homeserver.get("agents", ())
    for client, values in parts.clients.items():
        at = ("clients", client, "requester")
        requester = values.get("requester")
        if requester is not None and requester == own:
            yield Fault(at, f"{shown(requester)} is the bot's own account; name the person for whom the client asks")
        elif requester is not None and requester in agents:
            yield Fault(at, f"{shown(requester)} is one of `homeserver.agents`; name the person for whom it asks")
        barring = [route for route in asked_on(parts, client) if parts.routes.get(route, {}).get("not_requester")]
        if "requester" in values and requester is None and barring:
            yield Fault(at, f"is required: `routes.{barring[0]}.not_requester` keeps that person from approving")


def quorum_faults(parts: Parts) -> Iterator[Fault]:
    """There are as many approvers as a decision needs, also without the person for whom a client asks.

    Whom a power level makes an approver is not known here: there each question is checked when it is asked.
    """
    for route, values in parts.routes.items():
        approvers, quorum = values.get("approvers"), values.get("quorum")
        if approvers is None or quorum is None or values.get("approvers_from", ...) is not None:
            continue
        if len(set(approvers)) < quorum:
            yield Fault(("routes", route, "quorum"), f"{quorum} is more than there are approvers ({len(approvers)})")
            continue
        for client, asking in parts.clients.items():
            requester = asking.get("requester")
            if not values.get("not_requester") or route not in asked_on(parts, client) or requester is None:
                continue
            if len(set(approvers) - {requester}) < quorum:
                reason = (
                    f"is too few: without {shown(requester)}, for whom `clients.{client}` asks, {quorum} are needed"
                )
                yield Fault(("routes", route, "approvers"), reason)


def token_faults(parts: Parts) -> Iterator[Fault]:
    """One token, one holder: a shared one would let a client read another's requests."""
    access_token: SecretStr | None = parts.homeserver.get("access_token")
    holders = {} if access_token is None else {access_token.get_secret_value(): "`homeserver.access_token`"}
    for client, values in parts.clients.items():
        token: SecretStr | None = values.get("token")
        if token is None:
            continue
        holder = holders.setdefault(token.get_secret_value(), f"`clients.{client}.token`")
        if holder != f"`clients.{client}.token`":
            yield Fault(("clients", client, "token"), f"is the same as {holder}; each client needs a token of its own")


def session_faults(homeserver: Mapping[str, Any]) -> Iterator[Fault]:
    """What renews the bot's session keeps its device, and is not lost with the process."""
    if not {"device_id", "password", "refresh_token", "refresh_token_file"} <= homeserver.keys():
        return  # what could not be read has a fault of its own
    if homeserver["password"] is not None and homeserver["device_id"] is None:
        reason = "is required with `homeserver.password`: the device on which the bot logs in again"
        yield Fault(("homeserver", "device_id"), reason)
    if homeserver["refresh_token"] is not None and homeserver["refresh_token_file"] is None:
        reason = "is another one after each use, which only a file can keep; name it in `homeserver.refresh_token_file`"
        yield Fault(("homeserver", "refresh_token"), reason)


def encryption_faults(parts: Parts) -> Iterator[Fault]:
    """Keys are one device's, and nobody is trusted for a device that cannot be told from another."""
    if not {"pickle_key", "trust"} <= parts.e2e.keys():
        return
    if parts.e2e["pickle_key"] is None:
        if parts.e2e["trust"] != "all":
            reason = f"is {parts.e2e['trust']}, which needs encrypted rooms: set `e2e.pickle_key_file`"
            yield Fault(("e2e", "trust"), reason)
    elif parts.homeserver.get("device_id", "") is None:
        reason = "is required with `e2e.pickle_key`: the device whose keys they are; `agentpod-bot login` prints it"
        yield Fault(("homeserver", "device_id"), reason)


def callback_faults(parts: Parts) -> Iterator[Fault]:
    """A callback has an address and a secret of its own, and leaves the machine's own networks encrypted only."""
    for client, values in parts.clients.items():
        if not {"callback_url", "callback_secret", "callback_old_secret"} <= values.keys():
            continue  # what could not be read has a fault of its own
        url, secret = values["callback_url"], values["callback_secret"]
        at = ("clients", client, "callback_url")
        if url is not None and secret is None and values.get("callback_secret_file") is None:
            yield Fault(at, f"needs a secret to sign with: set `clients.{client}.callback_secret_file`")
        if url is not None and url.startswith("http:") and values.get("callback_allow_private") is False:
            reason = "is not encrypted; write https, or allow addresses of your own network (`callback_allow_private`)"
            yield Fault(at, reason)
        for key, needed in (("callback_secret", "callback_url"), ("callback_old_secret", "callback_secret")):
            if values[key] is not None and values[needed] is None:
                yield Fault(("clients", client, key), f"is of no use without `clients.{client}.{needed}`")
    yield from callback_secret_faults(parts)


def callback_secret_faults(parts: Parts) -> Iterator[Fault]:
    """One callback secret, one client: with a shared one an outcome of one could be passed off as another's."""
    tokens = [
        values.get("token") for values in (*parts.clients.values(), {"token": parts.homeserver.get("access_token")})
    ]
    holders = {token.get_secret_value().encode(): "a token" for token in tokens if token is not None}
    for client, values in parts.clients.items():
        for key in ("callback_secret", "callback_old_secret"):
            secret: SecretStr | None = values.get(key)
            if secret is None:
                continue
            at = ("clients", client, key)
            try:
                signing = webhook_secret(secret.get_secret_value())
            except ValueError as error:
                yield Fault(at, str(error))
                continue
            own = f"`clients.{client}.{key}`"
            holder = holders.get(secret.get_secret_value().encode()) or holders.setdefault(signing, own)
            if holder != own:
                yield Fault(at, f"is the same as {holder}; each needs a secret of its own")
