"""``python -m ampsq.coordinator --url URL``: what the embedded server starts beside itself."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys

from ampsq.base.shutdown import ENDS_WITHIN, end_process_within
from ampsq.coordinator.actions import OutsidePermissions
from ampsq.coordinator.main import Coordinator, collect_garbage_seldom

__all__ = ["main"]


def main() -> int:
    """Run a coordinator until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="ampsq.coordinator", description="Run a coordinator.")
    parser.add_argument("--url", default=os.environ.get("AMPSQ_URL"), required="AMPSQ_URL" not in os.environ)
    parser.add_argument("--instance", action="append", help="an instance to care for; default AMPSQ_INSTANCE, else all")
    allowed = os.environ.get("AMPSQ_ALLOW_COMMANDS", "").lower() in ("1", "true", "t", "yes", "y", "on")
    parser.add_argument("--allow-commands", action="store_true", default=allowed)
    parser.add_argument("--allow-webhooks", action="append", metavar="PREFIX")
    options = parser.parse_args()
    webhooks = options.allow_webhooks or os.environ.get("AMPSQ_ALLOW_WEBHOOKS", "").split()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    instances = options.instance or ([name] if (name := os.environ.get("AMPSQ_INSTANCE")) else [])
    powers = OutsidePermissions(options.allow_commands, tuple(webhooks))
    collect_garbage_seldom()
    coordinator = Coordinator(options.url, instances, powers)

    def stop(_number: int, _frame: object) -> None:
        end_process_within(ENDS_WITHIN, 0)
        coordinator.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    coordinator.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
