"""A till that publishes over a gateway, and a desk that works off what it sold; nobody holds credentials of the server.

    python examples/gateway_client.py http://127.0.0.1:8081 NAME SECRET

A request whose answer was lost is sent again under the same number, so that a sale is recorded once.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import httpx
from websockets.sync.client import connect

ATTEMPTS = 5


class Till:
    """Publishes as a publisher of its own, whose numbers rise.

    Args:
        gateway: its address.
        name, secret: of the user.
        publisher: the publisher, of which one runs at a time.
        sequence: the number of the first message; a till that is started again goes on behind its last one.
    """

    def __init__(self, gateway: str, name: str, secret: str, publisher: str, sequence: int = 1) -> None:
        self._http = httpx.Client(base_url=gateway, auth=(name, secret), timeout=35)
        self._publisher, self._sequence = publisher, sequence

    def sell(self, sale: dict[str, Any]) -> str | None:
        """Record one sale, once; gives its bookmark."""
        number = {"Ampsq-Publisher": self._publisher, "Ampsq-Sequence": str(self._sequence)}
        for attempt in range(ATTEMPTS):
            try:
                answer = self._http.post("/v1/publish", json={"topic": "orders", "data": sale}, headers=number)
            except httpx.TransportError:
                # Nobody knows whether it was recorded: under its number that does no harm.
                answer = None
            if answer is not None and answer.status_code not in {429, 503, 504}:
                answer.raise_for_status()
                self._sequence += 1
                bookmark: str | None = answer.json()["bookmark"]
                return bookmark
            time.sleep(0.2 * 2**attempt)
        raise TimeoutError(f"sale {self._sequence} is not known to be recorded; sell it again under this number")


def work(gateway: str, name: str, secret: str, count: int) -> list[Any]:
    """Work off so many messages of the queue; each is acknowledged when it is done."""
    done: list[Any] = []
    address = gateway.replace("http", "ws", 1) + "/v1/subscribe?queue=work&max_backlog=10"
    with connect(address, additional_headers={"authorization": f"Bearer {name}:{secret}"}) as socket:
        while len(done) < count:
            told = json.loads(socket.recv(timeout=60))
            if told["type"] == "error":
                raise RuntimeError(told["text"])
            if told["type"] == "message":
                done.append(told["data"])
                socket.send(json.dumps({"do": "ack", "id": told["id"]}))
        # What was said last is answered, too.
        while json.loads(socket.recv(timeout=60)).get("type") != "settled":
            pass
    return done


def main(gateway: str, name: str, secret: str) -> None:
    """Sell three things and work them off."""
    till = Till(gateway, name, secret, publisher=f"example-{time.time_ns()}")
    for item in ("tea", "ink", "cash box"):
        print(till.sell({"item": item}))
    print(work(gateway, name, secret, 3))


if __name__ == "__main__":
    main(*sys.argv[1:4])
