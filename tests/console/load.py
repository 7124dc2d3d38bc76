"""Publish and consume so many messages a second until standard input ends, or LONGEST is over: a program of its own.

Arguments: the server's address, the instance, messages a second. Half of them are of a queue with groups. It prints how
many it has published with each second, and ends once all are acknowledged.
"""

from __future__ import annotations

import select
import sys
import time

import ampsq

#: Seconds after which it ends by itself.
LONGEST = 60.0
#: Messages of a step, half of them of each queue.
STEP = 200


def main(url, instance, rate):
    published, begun, told = 0, time.monotonic(), 0
    with (
        ampsq.Client(url, instance=instance) as client,
        client.subscribe("work", max_backlog=500) as plain,
        client.subscribe("tenants", max_backlog=500) as grouped,
    ):

        def consume(within):
            """Acknowledge what is there."""
            found = 0
            for subscription in (plain, grouped):
                while (message := subscription.get(timeout=within)) is not None:
                    message.ack()
                    found += 1
            return found

        while (passed := time.monotonic() - begun) < LONGEST and not select.select([sys.stdin], [], [], 0)[0]:
            if published < passed * rate:
                client.publish_many("orders", [{"id": published + each, "note": "x" * 40} for each in range(STEP // 2)])
                client.publish_many("tenants-in", [{"g": f"group-{each % 20}"} for each in range(STEP // 2)])
                published += STEP
            else:
                time.sleep(0.002)  # it is early
            consume(0)
            if passed > told + 1:
                told = passed
                sys.stdout.write(f"{published}\n")
                sys.stdout.flush()
        while consume(0.5):
            pass
        plain.flush()
        grouped.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
