"""Processes of a campaign, each killed at any time: ``campaign_crew.py ROLE URL INSTANCE RECORDS [...]``.

What one does it appends to its file of records, a JSON line at a time; the next process of the role goes on there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from ampsq import Client, FilePublishStore, Worker
from ampsq.base.errors import AmpsqError, NotPersisted, Unavailable

__all__ = ["RECORDS", "TOLD_TO_END", "Records", "handle"]

#: Where the handler that `ampsq worker` calls writes.
RECORDS = "AMPSQ_CAMPAIGN_RECORDS"
#: Seconds in which a publisher that is told to end gets rid of what it has.
TOLD_TO_END = 200.0
#: Seconds between two calls of a publisher with a store, with none, and through a gateway.
_PAUSES = {"publish": 0.1, "tell": 0.03, "post": 0.2}
_BATCH = 8


class Records:
    """Appends to a file, whole lines."""

    def __init__(self, path):
        self._path = Path(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, what, **facts):
        os.write(self._file, json.dumps({"what": what, "at": time.monotonic(), **facts}).encode() + b"\n")

    def read(self):
        lines = self._path.read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def begun(self):
        """The number after the last one that was to be published."""
        return max((each["last"] + 1 for each in self.read() if each["what"] == "means"), default=0)


def ending():
    """An event that SIGTERM sets."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    return stopping


def publish(url, instance, record):
    """Publish with a guarantee from a file, in batches; told to end, wait until all of it is persisted."""
    name, store, level = sys.argv[5:8]
    stopping, number = ending(), record.begun()
    with (
        Client(url, instance=instance, retry_timeout="60s", heartbeat="1s") as client,
        client.publisher(
            name,
            store=FilePublishStore(store),
            persisted=level,
            on_persisted=lambda ack: record("told", sequence=ack.sequence),
            on_failed_write=lambda failed: record("refused for good", why=repr(failed)),
        ) as till,
    ):
        record("ready")
        while not stopping.wait(_PAUSES["publish"]):
            last = number + _BATCH - 1
            record("means", first=number, last=last)
            receipts = till.publish_many("orders", [f'"{name} {each}"'.encode() for each in range(number, last + 1)])
            record("took", first=number, last=last, sequences=[receipt.sequence for receipt in receipts])
            number = last + 1
        try:
            till.flush(TOLD_TO_END)
        except NotPersisted as error:
            record("left", why=str(error))


def tell(url, instance, record):
    """Publish without any guarantee, one by one, and note what came of each."""
    (name,) = sys.argv[5:6]
    stopping, number = ending(), record.begun()
    with contextlib.ExitStack() as stack:
        client = None
        while client is None and not stopping.wait(_PAUSES["tell"]):
            # A server that is stopped for longer than it waits is there again some time.
            with contextlib.suppress(Unavailable):
                client = stack.enter_context(Client(url, instance=instance, retry_timeout="2s", heartbeat="1s"))
        record("ready")
        while not stopping.wait(_PAUSES["tell"]):
            record("means", first=number, last=number)
            try:
                client.publish("orders", f'"{name} {number}"'.encode())
            except Unavailable as error:
                record("unknown" if error.may_have_run else "refused", number=number, why=type(error).__name__)
            except AmpsqError as error:
                record("refused", number=number, why=type(error).__name__)
            else:
                record("answered", number=number)
            number += 1


def post(url, instance, record):
    """Publish through a gateway, each message under a key of its own, again until it is answered."""
    import httpx  # noqa: PLC0415 - the other roles start sooner without

    del instance
    (name,) = sys.argv[5:6]
    stopping, number = ending(), record.begun()

    def is_answered(sent, key):
        try:
            answer = http.post("/v1/publish", json=sent, headers={"idempotency-key": key})
        except httpx.HTTPError as error:
            record("again", number=number, why=repr(error))
            return False
        if answer.status_code != httpx.codes.OK:
            record("again", number=number, why=answer.text)
        return answer.status_code == httpx.codes.OK

    with httpx.Client(base_url=url, auth=("till", "cash"), timeout=20) as http:
        record("ready")
        while not stopping.wait(_PAUSES["post"]):
            record("means", first=number, last=number)
            until = time.monotonic() + TOLD_TO_END
            sent = {"topic": "orders", "data": f"{name} {number}", "persisted": "fsync"}
            while time.monotonic() < until and not is_answered(sent, f"{name}-{number}"):
                time.sleep(0.2)  # before it is asked again
            record("answered" if time.monotonic() < until else "unknown", number=number)
            number += 1


def handle(message):
    """Handle one of `ampsq worker`."""
    _handled(message)


def _handled(message):
    # The file belongs to this process, whichever thread calls.
    record = _opened()
    time.sleep(0.002)  # the handler's work
    record("handled", body=message.data, delivery=message.delivery)


def _opened(kept=[]):  # noqa: B006 - one for all calls is what is wanted
    if not kept:
        kept.append(Records(os.environ[RECORDS]))
    return kept[0]


def work(url, instance, record):
    """Handle messages, four at a time."""
    record("ready")
    Worker(_handled, "work", url=url, instance=instance, concurrency=4, max_backlog=40).run(signals=True)


if __name__ == "__main__":
    os.environ.setdefault(RECORDS, sys.argv[4])
    {"publish": publish, "tell": tell, "post": post, "work": work}[sys.argv[1]](
        sys.argv[2], sys.argv[3], Records(sys.argv[4])
    )
