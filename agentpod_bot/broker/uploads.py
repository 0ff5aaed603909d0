"""The file with a question's full text: uploaded before the question goes out, shown right after it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from agentpod_bot.broker.change import FILE, MESSAGE, QUESTION, UPLOAD, After, Means, change
from agentpod_bot.broker.composing import composed
from agentpod_bot.broker.places import attach, read
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.lifecycle import Undelivered
from agentpod_bot.core.model import Attachment
from agentpod_bot.errors import Invalid, Refused, TooLarge
from agentpod_bot.render.attachment import CONTENT_TYPE, file_message, filename, fits, full_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.core.kept import Effect
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.errors import MatrixError
    from agentpod_bot.ports import Homeserver, Tx

log = structlog.get_logger(__name__)

MOST_TRIES = 4
"""After so many failures the question goes out without its file, and without anything that approves."""


def is_to_upload(effect: Effect, question: Question, room: RoomState) -> bool:
    """Whether a file is uploaded now: it is its turn, or its event's in a room that changed since it was."""
    unfit = effect.effect == FILE and not fits(question.asked.file, encrypted=room.encrypted is True)
    return effect.effect == UPLOAD or unfit


class Uploads:
    """Uploads files, and says in the store what became of them."""

    def __init__(self, homeserver: Homeserver, means: Means, commit: Commit) -> None:
        self._homeserver = homeserver
        self._means = means
        self._commit = commit

    async def upload(self, effect: Effect, question: Question, room: RoomState) -> None:
        """Upload one file. What the homeserver never will take leaves a new question without its file.

        A failure that can pass is raised, to be tried again; and so is every one of a
        question that is in the room already.
        """
        text = full_text(question.asked).encode()
        try:
            file = await self._homeserver.upload(room, filename(question.asked), CONTENT_TYPE, text)
        except Refused as error:
            if effect.effect != UPLOAD:
                raise
            await self.fail(effect, question, room, error)
            return
        done = self._uploaded if effect.effect == UPLOAD else self._uploaded_again
        await self._commit(lambda tx, after: done(tx, after, effect, question, file=file))

    async def fail(self, effect: Effect, question: Question, room: RoomState, error: MatrixError) -> None:
        """Have the question go out without its file: then nothing that approves is offered."""
        log.warning("upload_failed", room_id=effect.room_id, error=error.code, tries=effect.attempts)
        await self._commit(lambda tx, after: self._failed(tx, after, effect, question, room))

    def _uploaded(self, tx: Tx, after: After, effect: Effect, question: Question, *, file: Mapping[str, Any]) -> None:
        tx.abandon(effect.effect_id, "uploaded")
        if _left(tx, effect, question):
            return
        attach(tx, question, Attachment.UPLOADED, file=file)
        tx.enqueue(self._means.effect(effect.room_id, FILE, Priority.FILE, None, row=question.row, event_type=MESSAGE))
        after.rooms.add(effect.room_id)

    @staticmethod
    def _uploaded_again(tx: Tx, after: After, effect: Effect, question: Question, *, file: Mapping[str, Any]) -> None:
        now = read(tx, question.row, effect.room_id)
        if now is not None and now.is_open:
            attach(tx, now, Attachment.UPLOADED, file=file)
            tx.fill(effect.effect_id, file_message(replace(now, asked=replace(now.asked, file=file))))
        after.rooms.add(effect.room_id)

    def _failed(self, tx: Tx, after: After, effect: Effect, question: Question, room: RoomState) -> None:
        tx.abandon(effect.effect_id, "upload failed")
        if _left(tx, effect, question):
            return
        after.rooms.add(effect.room_id)
        if question.original is not None:
            tx.drop_copy(question.row)  # it would offer less than the question does; it is tried again later
            return
        bare = replace(question.asked, attachment=Attachment.FAILED)
        try:
            new, content = composed(tx, bare, room, self._means, stored=question)
        except (TooLarge, Invalid):
            change(tx, question, Undelivered("its full text could not be uploaded"), after, self._means)
            tx.drop_unsent(question.row, effect.room_id, QUESTION)
            return
        tx.attach(question.row, new.attachment, offered=new.offered)
        unsent = tx.unsent(question.row, effect.room_id, QUESTION)
        if unsent is not None:
            tx.fill(unsent.effect_id, content)


def _left(tx: Tx, effect: Effect, question: Question) -> bool:
    """Whether the question left this room while its file was on the way; for the next room another one is."""
    now = read(tx, question.row, effect.room_id)
    return now is not None and now.left_at_ms is not None
