"""Load on a gateway in a process of its own: publishing, a queue over a WebSocket, and the time of a push."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from ampsq.bench import raw
from ampsq.bench.setup import Stage
from ampsq.definitions.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from websockets.sync.client import ClientConnection

    from ampsq.client.client import Client

__all__ = ["GatewayFigures"]

_FILL: Final = "x" * 230
_SECRET: Final = "of the benchmark"  # noqa: S105  (it dies with its gateway)
_BACKLOG: Final = 100
#: Messages a second of the latency figures; requests of one message are so many times fewer than messages in batches.
_RATE: Final = 200
_SINGLE: Final = 10


class GatewayFigures(Stage):
    """The measurement, on one server; see `Stage`."""

    def run(self) -> dict[str, object]:
        """Rates and latencies over the gateway, beside those of a client of the server."""
        client = self.client()
        client.apply(
            Queue(name="work", underlying_topic="orders", lease_period="60s", max_per_subscription_backlog=_BACKLOG)
        )
        with _serving(self.url, client.instance) as address:
            caller = _Caller(address)
            found: dict[str, list[float]] = {}
            for number in range(self.settings.rounds):
                self.progress(f"gateway, round {number + 1} of {self.settings.rounds}")
                for name, measure in self._ways(caller, client).items():
                    # One that was idle meanwhile, the gateway has closed.
                    caller.close()
                    found.setdefault(name, []).append(measure())
            found.pop("drained")
            out: dict[str, object] = {name: round(statistics.median(rates)) for name, rates in found.items()}
            self.progress("gateway, latency")
            gone = self._latencies(caller, client)
        out["latency"] = {
            f"p{percent}_us": round(statistics.quantiles(gone, n=100)[percent - 1] * 1e6) for percent in (50, 99)
        }
        self.remove(client)
        return out

    def _ways(self, caller: _Caller, client: Client) -> dict[str, Callable[[], float]]:
        count, single = self.settings.messages, self.settings.messages // _SINGLE
        one, hundred = {"topic": "orders", "data": {"x": _FILL}}, [{"data": {"x": _FILL}}] * 100
        many = {"topic": "orders", "messages": hundred}

        def publish() -> float:
            return _rate(single, lambda: [caller.post("/v1/publish", one) for _ in range(single)])

        def publish_directly() -> float:
            return _rate(single, lambda: [client.publish("orders", {"x": _FILL}) for _ in range(single)])

        def publish_many() -> float:
            return _rate(count, lambda: [caller.post("/v1/publish_many", many) for _ in range(count // 100)])

        def subscribe() -> float:
            return self._consume(caller, single)

        def drain() -> float:
            client.ack("work", filter="1 = 1")
            return 0.0

        return {
            "publish_per_second": publish,
            "publish_directly_per_second": publish_directly,
            "publish_many_per_second": publish_many,
            "subscribe_per_second": subscribe,
            "drained": drain,
        }

    @staticmethod
    def _consume(caller: _Caller, count: int) -> float:
        """Take so many messages and acknowledge each; as many acknowledgements are under way as messages."""
        with caller.open("/v1/subscribe", queue="work", max_backlog=_BACKLOG) as socket:
            settled, started = 0, time.perf_counter()
            while settled < count:
                told = json.loads(socket.recv())
                if told["type"] == "message":
                    socket.send(json.dumps({"do": "ack", "id": told["id"]}))
                elif told["type"] == "settled":
                    settled += 1
            return count / (time.perf_counter() - started)

    def _latencies(self, caller: _Caller, client: Client) -> list[float]:
        """Seconds from when a client of the server publishes until a subscriber over the gateway has it."""
        count, found = self.settings.latency // 2, list[float]()
        with caller.open("/v1/subscribe", queue="work", max_backlog=_BACKLOG) as socket:
            socket.recv()

            def read() -> None:
                while len(found) < count:
                    told = json.loads(socket.recv())
                    if told["type"] == "message":
                        found.append(time.perf_counter() - told["data"]["at"])
                        socket.send(json.dumps({"do": "ack", "id": told["id"]}))

            thread = Thread(target=read)
            thread.start()
            raw.paced(_RATE, count, lambda: client.publish("orders", {"at": time.perf_counter(), "x": _FILL}))
            thread.join()
        return found


def _rate(count: int, do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return count / (time.perf_counter() - started)


class _Caller:
    """One user, with a connection that is kept."""

    def __init__(self, address: str) -> None:
        self._host = urlsplit(address).netloc
        self._line = http.client.HTTPConnection(self._host, timeout=30)
        proof = base64.b64encode(f"bench:{_SECRET}".encode()).decode()
        self._headers = {"authorization": f"Basic {proof}", "content-type": "application/json"}

    def post(self, path: str, given: object) -> int:
        """Ask, and see that it was done; gives the bytes of the answer."""
        self._line.request("POST", path, json.dumps(given), self._headers)
        answer = self._line.getresponse()
        said = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise AssertionError(said.decode())
        return len(said)

    def close(self) -> None:
        """Let the next request open a connection."""
        self._line.close()

    def open(self, path: str, **parameters: object) -> ClientConnection:
        from websockets.sync.client import connect  # noqa: PLC0415  (of the extra gateway)

        proof = {"authorization": self._headers["authorization"]}
        return connect(f"ws://{self._host}{path}?{urlencode(parameters)}", additional_headers=proof, close_timeout=1)


@contextlib.contextmanager
def _serving(url: str, instance: str) -> Iterator[str]:
    """A gateway in a process of its own; gives its address."""
    from ampsq.gateway.users import Secret  # noqa: PLC0415  (of the extra gateway)

    with tempfile.TemporaryDirectory(prefix="ampsq-bench-") as folder:
        file = Path(folder, "gateway.yaml")
        file.write_text(
            f'users: [{{name: bench, secret: "{Secret.of(_SECRET)}"}}]\n'
            'entitlements: [{user: bench, name: "^.*$", rights: [read, write]}]\n',
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "ampsq.cli", "gateway", "--config", str(file), "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [*command, "--url", url, "--instance", instance, "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            told = process.stdout.readline() if process.stdout is not None else ""
            yield json.loads(told)["gateway"]
        finally:
            process.terminate()
            process.wait(30)
