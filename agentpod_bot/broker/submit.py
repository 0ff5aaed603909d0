"""Asking: one transaction that recognises a repeat, checks what may be asked, and stores the question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.broker.change import QUESTION, UPLOAD, After, Means, audit, change
from agentpod_bot.broker.composing import composed
from agentpod_bot.broker.reminders import plan_reminder
from agentpod_bot.core.codes import fresh_code
from agentpod_bot.core.digest import content_key, digest
from agentpod_bot.core.ids import RequestId
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.labels import check
from agentpod_bot.core.lifecycle import Superseded
from agentpod_bot.core.model import Attachment, Key, NewQuestion, Status, Submitted
from agentpod_bot.core.policy import Trust, check_caps, check_reachable
from agentpod_bot.core.text import folded
from agentpod_bot.core.votes import check_decidable
from agentpod_bot.errors import Invalid, RequestClosed, RequestIdReused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.core.ids import Code, RoomId, Row
    from agentpod_bot.core.model import Caller, Offered, Option, PermissionRequest, Question
    from agentpod_bot.core.policy import Limits, Policy, Route
    from agentpod_bot.ports import Tx

NATIVE = "native"
DAY_MS = 86_400_000
SALT_BITS = 128


def submit(
    tx: Tx,
    asked: PermissionRequest,
    caller: Caller,
    route: Route,
    *,
    after: After,
    means: Means,
    harness: str = NATIVE,
    twin: Row | None = None,
) -> Submitted:
    """Store a new question, or return the one that this request repeats.

    A repeat is recognised before deadline, caps and availability are looked at; none of
    them refuses it. `twin` is a question that asked the same and whose call has dropped.
    Raises what `Broker.submit` says.
    """
    client = caller.client
    key = content_key(asked, route.name)
    request_id = asked.request_id
    if request_id is None and asked.request_seq is not None:
        request_id = RequestId(f"{asked.session_id}:{asked.request_seq}")
    earlier = None if request_id is None else tx.current(client, request_id)
    dropped = None if twin is None else tx.question(twin)
    if dropped is not None and dropped.asked.content_key == key and _still_waits(dropped):
        return Submitted(dropped, created=False)
    # One harness's body says nothing to another's adapter: its echoes would be things that nobody was shown.
    same = earlier is not None and (earlier.asked.harness, earlier.asked.content_key) == (harness, key)
    if earlier is not None and not (harness != NATIVE and _is_over(earlier, same=same)):
        if same:
            return Submitted(earlier, created=False)
        if not earlier.is_open:
            raise RequestClosed(earlier.row, f"the request is {earlier.status.value}, and had other content")
        if not asked.supersede:
            raise RequestIdReused(earlier.row, "an open request has this id and other content")
    check(asked.options)
    now_ms = means.clock.now_ms()
    expires_at_ms = _deadline(asked, means.world.policy.limits, now_ms)
    world = means.world
    trouble = world.trouble()
    if trouble is not None:
        raise Unavailable(trouble)
    room = check_reachable(world.policy, route, world.room(route.room_id), can_encrypt=world.can_encrypt)
    if earlier is not None and earlier.is_open:
        change(tx, earlier, Superseded(), after, means)
    check_caps(
        means.world.policy.limits,
        route,
        **tx.open_counts(client=client, session_id=asked.session_id, route=route.name)._asdict(),
    )
    means.rates.take(caller)
    seq = tx.next_request_seq(client, asked.session_id) if asked.request_seq is None else asked.request_seq
    while request_id is None:  # the client may have chosen an id itself that looks like one of ours
        if tx.current(client, candidate := RequestId(f"{asked.session_id}:{seq}")) is None:
            request_id = candidate
        else:
            seq += 1
    in_room = tx.open_questions(room_id=route.room_id)
    code = fresh_code(
        means.chance.choose,
        taken=codes_taken(tx, world.policy.rooms_beside(route), world.policy, now_ms),
        names=_names(asked.options, (offered for question in in_room for offered in question.asked.offered)),
        # Of a store that was lost or put back nobody knows which codes were given, and answered.
        is_long=world.policy.is_strict(room),
    )
    revision = 1 if earlier is None else earlier.key.revision + 1
    salt = means.chance.hex(SALT_BITS)
    bare = NewQuestion(
        key=Key(client, request_id, revision),
        session_id=asked.session_id,
        request_seq=seq,
        title=asked.title,
        tool_kind=asked.tool_kind,
        agent=asked.agent,
        options=asked.options,
        preview=asked.preview,
        preview_complete=asked.preview_complete,
        route=route.name,
        room_id=route.room_id,
        code=code,
        salt=salt,
        digest=digest(asked, request_id=request_id, revision=revision, salt=salt),
        content_key=key,
        offered=(),
        created_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
        raw=asked.raw,
        masked=route.mask_secrets,
        attachment=Attachment.WANTED,
        requester=caller.requester,
        harness=harness,
        hold=asked.hold,
    )
    new, content = composed(tx, bare, room, means, in_room=in_room)
    check_decidable(means.world.policy, route, room, new)
    question = tx.insert(new)
    if question.asked.attachment is Attachment.WANTED:
        tx.enqueue(means.effect(route.room_id, UPLOAD, Priority.UPLOAD, None, row=question.row))
    tx.enqueue(means.effect(route.room_id, QUESTION, Priority.QUESTION, content, row=question.row))
    plan_reminder(tx, question, means)
    audit(tx, question, "asked", now_ms)
    after.rooms.add(route.room_id)
    after.clients.add(client)
    return Submitted(question, created=True)


def codes_taken(tx: Tx, rooms: Iterable[RoomId], policy: Policy, now_ms: int) -> frozenset[Code]:
    """Codes that are not given in these rooms now.

    They are those of the last day, or where an approval stands on its code, of all that is
    kept: a homeserver could hold such an answer back until its code is another question's.
    """
    rest_ms = DAY_MS if policy.trust is Trust.ALL else max(DAY_MS, policy.limits.retention_ms)
    return frozenset(code for room_id in rooms for code in tx.codes(room_id, since_ms=now_ms - rest_ms))


def _is_over(earlier: Question, *, same: bool) -> bool:
    """Whether a harness's call that has the id of an earlier one asks anew, as its next revision."""
    return not _still_waits(earlier) or not (earlier.is_open or same)


def _still_waits(earlier: Question) -> bool:
    """Whether a harness's call that comes again waits for this question's end.

    Otherwise it asks anew: an answer that was delivered, or that nobody waited for any
    longer, was for another call, whatever the two call themselves.
    """
    return earlier.is_open or (
        earlier.status is Status.DECIDED and earlier.delivered_at_ms is None and not earlier.gave_up
    )


def _deadline(asked: PermissionRequest, limits: Limits, now_ms: int) -> int:
    if asked.expires_at_ms is not None:
        if asked.expires_at_ms <= now_ms:
            raise Invalid(("expires_at",), "is not in the future")
        wanted = asked.expires_at_ms
    else:
        wanted = now_ms + (limits.ttl_ms if asked.ttl_ms is None else asked.ttl_ms)
    return min(wanted, now_ms + limits.max_ttl_ms)


def _names(options: Iterable[Option], open_in_room: Iterable[Offered]) -> frozenset[str]:
    """Every folded text that is a label or an id of this question or of an open one of the room."""
    mine = {folded(text) for option in options for text in (option.label, option.option_id)}
    theirs = {name for offered in open_in_room for name in (*offered.names, folded(offered.option.option_id))}
    return frozenset(mine | theirs)
