"""Conversations with models, stored message by message, so that they survive a crash."""

from __future__ import annotations

import msgspec

from kernel_assistant.records import decode, encode
from kernel_assistant.records.transcript import Message, Transcript
from kernel_assistant.store.database import Database


class Transcripts:
    """The conversations of all jobs. Every method raises StoreError when the database cannot be read or written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(
        self, job: str, conversation: int, transcript: Transcript, before: tuple[Message, ...] = ()
    ) -> tuple[Message, ...]:
        """Writes the messages that are new or changed since `before`, the return value of the previous call. Returns
        all messages, to pass as `before` to the next call."""
        head = msgspec.structs.replace(transcript, messages=())
        key = (int(job), conversation)
        changed = [
            (*key, position, encode(message).decode())
            for position, message in enumerate(transcript.messages)
            if position >= len(before) or before[position] is not message
        ]
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO transcripts VALUES (?, ?, ?)", (*key, encode(head).decode()))
            if not before:
                db.execute("DELETE FROM messages WHERE job = ? AND conversation = ?", key)
            db.executemany("INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?)", changed)
        return transcript.messages

    def of(self, job: str) -> tuple[Transcript, ...]:
        """Returns the conversations of a job, in order."""
        with self._database.reading() as db:
            heads = db.execute(
                "SELECT conversation, document FROM transcripts WHERE job = ? ORDER BY conversation", (int(job),)
            ).fetchall()
            return tuple(
                msgspec.structs.replace(
                    decode(head, Transcript),
                    messages=tuple(
                        decode(row[0], Message)
                        for row in db.execute(
                            "SELECT document FROM messages WHERE job = ? AND conversation = ? ORDER BY position",
                            (int(job), conversation),
                        )
                    ),
                )
                for conversation, head in heads
            )

    def count(self, job: str) -> int:
        """Returns the number of stored conversations of a job, which is also the number that the next conversation
        gets."""
        with self._database.reading() as db:
            (number,) = db.execute("SELECT count(*) FROM transcripts WHERE job = ?", (int(job),)).fetchone()
        return int(number)
