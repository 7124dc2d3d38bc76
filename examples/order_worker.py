"""A handler for ``ampsq worker``: return acknowledges, an exception cancels, `Reject` expires."""

import ampsq


def handle(message: ampsq.Message) -> None:
    """Price an order."""
    order = message.data
    if not isinstance(order, dict) or "qty" not in order:
        raise ampsq.Reject("not an order")
    print(f"order {order.get('id')}: {order['qty'] * order.get('price', 0):.2f}", flush=True)
