"""App of `taskmq demo --serve`: a busy shop that fills the dashboard."""

import asyncio
import random
from collections.abc import Coroutine
from datetime import date
from typing import Any

from taskmq import Context, Job, RetryPolicy, TaskMQ, group

DECLINED = 19
"""Number of orders of which one is declined at the first attempt."""
EXPIRED_CARD = 97
"""Number of orders of which one is paid with an expired card."""

app = TaskMQ(name="shop", version="1.42.1")
_random = random.Random(17)
_QUICK = RetryPolicy(max_attempts=3, base="2s", jitter=False)


class PaymentDeclinedError(Exception):
    """Raised when the bank declines a payment; a retry can help."""


class CardExpiredError(Exception):
    """Raised when the card has expired; a retry cannot help."""


@app.task(
    name="orders.charge", queue="orders", retry=RetryPolicy(max_attempts=3, base="2s", never=(CardExpiredError,))
)
async def charge(ctx: Context, order: int, cents: int, currency: str = "EUR") -> str:
    """Charge an order; some payments are declined at first, and some cards have expired."""
    await asyncio.sleep(0.05 + order % 7 / 20)
    if order % EXPIRED_CARD == 0:
        raise CardExpiredError(f"order {order}: the card has expired")
    if order % DECLINED == 0 and ctx.attempt == 1:
        raise PaymentDeclinedError(f"order {order}: {cents} {currency} were declined")
    return f"{cents} {currency} for order {order}"


@app.task(name="images.resize", queue="images", retry=_QUICK)
async def resize(ctx: Context, photo: int, width: int = 128, height: int = 128) -> dict[str, int]:
    """Make a photo fit a frame, step by step."""
    steps = 4 + photo % 5
    for step in range(steps):
        ctx.progress(step, steps)
        await asyncio.sleep(0.2)
    return {"photo": photo, "width": width, "height": height}


@app.task(name="mail.send", queue="mail", retry=_QUICK)
async def send_mail(to: str, subject: str, *, urgent: bool = False) -> str:
    """Send a mail to one address."""
    await asyncio.sleep(0.02)
    return f"{'urgent, ' if urgent else ''}{subject}, to {to}"


@app.every("1m", name="stock-report")
@app.task(name="reports.build", queue="reports", retry=None)
async def build(ctx: Context, pages: int = 45) -> str:
    """Build a long report, page by page."""
    for page in range(pages):
        ctx.progress(page, pages)
        await asyncio.sleep(1)
    return f"{pages} pages"


@app.cron("0 6 1 * *", name="monthly-report", tz="Europe/Paris")
@app.task(name="reports.summarise", queue="reports", retry=None)
def summarise(month: date | None = None) -> str:
    """Summarize a month, by default the previous one."""
    return f"nothing was sold in {'the last month' if month is None else f'{month:%B %Y}'}: it is a demo"


@app.cron("30 2 * * *", name="tidy-up", tz="Europe/Paris")
@app.task(name="shop.tidy", queue="reports", retry=None)
async def tidy() -> None:
    """Do nothing: a demo has nothing to tidy up."""


@app.task(name="books.count", queue="reports", retry=None)
async def count_sales(part: int) -> int:
    """Count the sales of a part of the customers."""
    await asyncio.sleep(0.5 + part / 2)
    return 40 + part


@app.task(name="books.total", queue="reports", retry=None)
def add_up(sales: list[int]) -> int:
    """Add up the sales of all customers."""
    return sum(sales)


close_books = group(count_sales.s(part) for part in range(4)) | add_up.s() | summarise.si()


@app.every("5m", name="close-books")
@app.task(name="books.close", queue="reports", retry=None)
async def close() -> str:
    """Start the workflow that adds up the sales; return its id."""
    return (await close_books.asend()).id


def submit_order(order: int) -> Coroutine[Any, Any, Job[str]]:
    """Return the submission of an order's payment."""
    labels = {"customer": f"c{order % 40}", "batch": str(order % 3)}
    return app.jobs.asubmit(charge, order, 500 + order % 90_000, labels=labels)


def submit_photo(order: int) -> Coroutine[Any, Any, Job[dict[str, int]]]:
    """Return the submission of an order's photo."""
    return app.jobs.asubmit(resize, order, description=f"a photo of order {order}")


@app.every("8s", name="customers")
@app.task(name="shop.feed", queue="mail", retry=None)
async def feed() -> None:
    """Place an order now and then, with mails and photos, some for later."""
    order = _random.randrange(1, 100_000)
    if order % 2:
        return
    await submit_order(order)
    await send_mail.asend(f"c{order % 40}@example.org", f"your order {order}")
    await send_mail.options(delay="20s").asend(f"c{order % 40}@example.org", f"order {order} is on its way")
    if order % 3 == 0:
        await submit_photo(order)
    if order % 11 == 0:
        await app.jobs.asubmit(send_mail, "office@example.org", f"look at order {order}", held=True)
