from __future__ import annotations

from dataclasses import replace

import pytest

from agentpod_bot import errors
from agentpod_bot.core.ids import RoomId
from agentpod_bot.core.policy import check_caps, check_reachable
from agentpod_bot.core.room import Encryption
from tests.examples import LIMITS, MALLORY, OPS, OPS_ROUTE, OWNER, POD, POLICY, ROOM, SECOND


def test_a_room_with_one_approver_is_reachable() -> None:
    room = replace(ROOM, joined=frozenset({POD, OWNER, MALLORY}))
    assert check_reachable(POLICY, OPS_ROUTE, room, can_encrypt=False) == room


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"replaced": True}, errors.RoomReplaced),
        ({"bot_joined": False}, errors.NotInRoom),
        ({"encrypted": True}, errors.RoomEncryptedWithoutCrypto),
        ({"encrypted": None}, errors.Unavailable),
        ({"joined": frozenset({POD, MALLORY})}, errors.ApproverNotInRoom),
    ],
)
def test_each_reason_why_nobody_can_be_asked_is_told_at_once(changes: dict[str, object], error: type) -> None:
    with pytest.raises(error) as caught:
        check_reachable(POLICY, OPS_ROUTE, replace(ROOM, **changes), can_encrypt=False)  # type: ignore[arg-type]  # real fields
    assert type(caught.value) is error


def test_an_encrypted_room_is_reachable_for_a_bot_that_can_encrypt_as_the_room_wants() -> None:
    room = replace(ROOM, encrypted=True)
    assert check_reachable(POLICY, OPS_ROUTE, room, can_encrypt=True) == room
    odd = replace(room, encryption=Encryption(is_megolm=False))
    with pytest.raises(errors.RoomEncryptedWithoutCrypto):
        check_reachable(POLICY, OPS_ROUTE, odd, can_encrypt=True)
    with pytest.raises(errors.Unavailable) as caught:
        check_reachable(POLICY, OPS_ROUTE, replace(ROOM, encrypted=None), can_encrypt=True)
    assert type(caught.value) is errors.Unavailable


def test_an_unknown_room_and_a_route_without_approvers_cannot_be_asked() -> None:
    with pytest.raises(errors.Unavailable):
        check_reachable(POLICY, OPS_ROUTE, None, can_encrypt=True)
    with pytest.raises(errors.NoApprover):
        check_reachable(POLICY, replace(OPS_ROUTE, approvers=frozenset()), ROOM, can_encrypt=True)


@pytest.mark.parametrize(("scope", "at"), [("session", 10), ("token", 30), ("route", 50), ("all", 500)])
def test_each_cap_is_reached_exactly_there(scope: str, at: int) -> None:
    def check(count: int) -> None:
        counts = {f"of_{name}": count if name == scope else 0 for name in ("session", "token", "route", "all")}
        check_caps(LIMITS, OPS_ROUTE, **counts)

    check(at - 1)
    with pytest.raises(errors.TooManyPending) as caught:
        check(at)
    assert (caught.value.scope, caught.value.limit) == ("daemon" if scope == "all" else scope, at)


def test_an_invitation_is_followed_only_into_a_configured_room_and_by_its_approver() -> None:
    assert POLICY.may_invite(OWNER, OPS)
    assert POLICY.may_invite(SECOND, OPS)
    assert not POLICY.may_invite(MALLORY, OPS)
    assert not POLICY.may_invite(OWNER, RoomId("!elsewhere"))
