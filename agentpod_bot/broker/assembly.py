"""Puts the broker's parts together, the same way in the daemon and in its tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentpod_bot.broker.broker import Broker
from agentpod_bot.broker.change import Means
from agentpod_bot.broker.commit import Bell, Commit
from agentpod_bot.broker.deadlines import Deadlines
from agentpod_bot.broker.escalation import Escalations
from agentpod_bot.broker.holds import Holds
from agentpod_bot.broker.inbox import Inbox
from agentpod_bot.broker.outbox import Outbox
from agentpod_bot.broker.rates import Rates
from agentpod_bot.broker.rooms import Rooms
from agentpod_bot.broker.streams import Streams
from agentpod_bot.broker.upgrades import Upgrades
from agentpod_bot.broker.waiters import Waiters
from agentpod_bot.broker.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.core.policy import Policy
    from agentpod_bot.ports import Chance, Clock, Homeserver, Meter, Store


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything between HTTP and Matrix, built once. `outbox`, `rooms`, `deadlines` and `holds` have to be run.

    Before that, `holds` and `upgrades` have to recover.
    """

    world: World
    waiters: Waiters
    broker: Broker
    inbox: Inbox
    outbox: Outbox
    rooms: Rooms
    upgrades: Upgrades
    deadlines: Deadlines
    escalations: Escalations
    holds: Holds
    commit: Commit


def assemble(
    store: Store,
    homeserver: Homeserver,
    policy: Policy,
    *,
    clock: Clock,
    chance: Chance,
    meter: Meter,
    call_back: Callable[[], None] | None = None,
) -> Parts:
    """Build the parts around one store and one account. `call_back` is told of outcomes that are to be posted."""
    world = World(policy, homeserver, store)
    means = Means(world, clock, chance, Rates(clock))
    waiters = Waiters()
    bell = Bell()
    streams = Streams(store, waiters, limit=lambda: world.policy.limits.max_waits_per_token)
    commit = Commit(store, waiters, bell, meter, streams, call_back=call_back)
    upgrades = Upgrades(store, homeserver, means, commit)
    rooms = Rooms(world, homeserver, upgrades)
    escalations = Escalations(means, commit)
    deadlines = Deadlines(store, means, commit, escalations)
    holds = Holds(store, means, commit)
    outbox = Outbox(store, homeserver, means, waiters=waiters, commit=commit, bell=bell, meter=meter)
    return Parts(
        world=world,
        waiters=waiters,
        broker=Broker(
            store,
            means,
            waiters=waiters,
            commit=commit,
            outbox=outbox,
            deadlines=deadlines,
            holds=holds,
            streams=streams,
            meter=meter,
        ),
        inbox=Inbox(store, means, commit, rooms),
        outbox=outbox,
        rooms=rooms,
        upgrades=upgrades,
        deadlines=deadlines,
        escalations=escalations,
        holds=holds,
        commit=commit,
    )
