"""What the settings mean to the parts that decide and listen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.api.server import Tcp, Unix
from agentpod_bot.callbacks.target import targets_of
from agentpod_bot.core.ids import ClientName, RoomId, RouteName, UserId
from agentpod_bot.core.model import Caller
from agentpod_bot.core.policy import Limits, Policy, Reactions, Route, Trust
from agentpod_bot.core.rate import Rate
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from agentpod_bot.config.model import Settings


def policy_of(settings: Settings, aliases: dict[str, RoomId]) -> Policy:
    """The deciding part of the settings. An alias that is not resolved yet stands for itself, and is no room."""
    return Policy(
        own=settings.homeserver.user_id,
        agents=frozenset(settings.homeserver.agents),
        routes={
            RouteName(name): Route(
                name=RouteName(name),
                room_id=aliases.get(route.room, RoomId(route.room)),
                approvers=frozenset(UserId(user_id) for user_id in route.approvers),
                harnesses=frozenset(route.harnesses),
                reactions=Reactions(route.reactions),
                max_pending=route.max_pending,
                mask_secrets=route.mask_secrets,
                approver_level=None if route.approvers_from is None else route.approvers_from.least,
                quorum=route.quorum,
                not_requester=route.not_requester,
                remind_before_ms=route.remind_before_ms,
                escalation=route.escalate,
                quiet=route.quiet_hours,
                follow_upgrades=route.follow_upgrades,
                hands_back=route.when_unanswered == "terminal",
            )
            for name, route in settings.routes.items()
        },
        limits=Limits(
            ttl_ms=settings.requests.time_to_live_ms,
            max_ttl_ms=settings.requests.max_time_to_live_ms,
            retention_ms=settings.requests.retention_ms,
            max_pending_per_session=settings.requests.max_pending_per_session,
            max_pending_per_token=settings.requests.max_pending_per_token,
            max_waits_per_token=settings.http.max_waits_per_token,
            max_pending=settings.requests.max_pending,
            audit_retention_ms=settings.audit.retention_ms,
        ),
        called_back=frozenset(targets_of(settings)),
        trust=Trust(settings.e2e.trust),
    )


def tokens_of(settings: Settings) -> list[tuple[str, Caller]]:
    """Every client's token, and what it may do."""
    return [
        (
            client.token.get_secret_value(),
            Caller(
                client=ClientName(name),
                routes=frozenset(RouteName(route) for route in client.routes),
                harnesses=frozenset(client.harnesses),
                requester=client.requester,
                codex_version=client.codex_version,
                rate=None if client.rate is None else Rate(client.rate.count, client.rate.per_ms),
            ),
        )
        for name, client in settings.clients.items()
    ]


def listening(settings: Settings) -> Tcp | Unix:
    """Where harnesses call."""
    http = settings.http
    if http.socket is not None:
        return Unix(http.socket)
    if http.listen is None:
        raise ConfigurationError("http: neither listen nor socket is given")
    return Tcp(http.listen.host, http.listen.port)
