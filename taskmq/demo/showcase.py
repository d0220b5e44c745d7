"""App of `taskmq demo --serve`: a busy shop that fills the dashboard."""

import asyncio
import random
from datetime import date

from taskmq import Context, RetryPolicy, TaskMQ

__all__ = ["app", "charge", "feed", "resize", "send_mail", "summarise", "tidy"]

app = TaskMQ(name="shop")
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
    """Charge an order; some payments are declined at first, and every seventeenth card has expired."""
    await asyncio.sleep(0.05 + order % 7 / 20)
    if order % 17 == 0:
        raise CardExpiredError(f"order {order}: the card has expired")
    if order % 5 == 0 and ctx.attempt == 1:
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


@app.cron("0 6 1 * *", name="monthly-report", tz="Europe/Paris")
@app.task(name="reports.summarise", queue="reports", retry=None)
def summarise(month: date | None = None) -> str:
    """Summarize a month, by default the previous one."""
    return f"nothing was sold in {'the last month' if month is None else f'{month:%B %Y}'}: it is a demo"


@app.cron("30 2 * * *", name="tidy-up", tz="Europe/Paris")
@app.task(name="shop.tidy", queue="reports", retry=None)
async def tidy() -> None:
    """Do nothing: a demo has nothing to tidy up."""


@app.every("4s", name="customers")
@app.task(name="shop.feed", queue="mail", retry=None)
async def feed() -> int:
    """Create a few orders, photos and mails, some for later."""
    orders = [_random.randrange(1, 100_000) for _ in range(_random.randrange(2, 7))]
    for order in orders:
        labels = {"customer": f"c{order % 40}", "batch": str(order % 3)}
        await app.jobs.asubmit(charge, order, _random.randrange(500, 90_000), labels=labels)
        await app.jobs.asubmit(send_mail, f"c{order % 40}@example.org", f"your order {order}", delay="20s")
        if order % 3 == 0:
            await app.jobs.asubmit(resize, order, description=f"a photo of order {order}")
        if order % 11 == 0:
            await app.jobs.asubmit(send_mail, "office@example.org", f"look at order {order}", held=True)
    return len(orders)
