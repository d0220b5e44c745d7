"""Calling a consumer's `deliver`."""

import asyncio
from collections.abc import Callable, Iterable

from taskmq.contracts.broker import Delivery

__all__ = ["deliver_all"]


def deliver_all(deliveries: Iterable[Delivery], deliver: Callable[[Delivery], None]) -> None:
    """Call `deliver` for each, in order; an error of one goes to the loop's exception handler."""
    for delivery in deliveries:
        try:
            deliver(delivery)
        except Exception as error:  # noqa: BLE001 - one call that fails must not strand the deliveries after it
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"deliver failed for {delivery!r}", "exception": error}
            )
