"""Background tasks of the shop; README.md says how to run them."""

import mailbox
import os
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from zoneinfo import ZoneInfo

from taskmq import Concurrency, Context, Depends, RateLimit, TaskMQ, WorkQueue

PARIS = ZoneInfo("Europe/Paris")
TABLES = """
    CREATE TABLE IF NOT EXISTS orders (
        number INTEGER PRIMARY KEY, key TEXT UNIQUE,
        customer TEXT, seller TEXT, cents INTEGER, currency TEXT, day TEXT
    );
    CREATE TABLE IF NOT EXISTS ledger (place INTEGER PRIMARY KEY, customer TEXT, number INTEGER UNIQUE);
"""

app = TaskMQ(send_timeout="3s", queues=[WorkQueue("ledger", ordered=8)])


def home() -> Path:
    """Return the folder of the database, mails, photos and exports."""
    folder = Path(os.environ.get("SHOP_HOME", "data"))
    folder.mkdir(exist_ok=True)
    return folder


def database() -> Iterator[sqlite3.Connection]:
    """Open a transaction for each run: committed when the task returns, rolled back when it raises."""
    connection = sqlite3.connect(home() / "shop.db", timeout=30)
    try:
        connection.executescript(TABLES)
        with connection:
            yield connection
    finally:
        connection.close()


def deliver(to: str, subject: str) -> None:
    message = EmailMessage()
    message["To"], message["Subject"] = to, subject
    mailbox.Maildir(home() / "mail").add(message)


# One mail for each order, however often the order is sent.
@app.task(queue="mail", idempotency_key="confirm:{number}")
def confirm(number: int, db: sqlite3.Connection = Depends(database)) -> str:
    (customer,) = db.execute("SELECT customer FROM orders WHERE number = ?", [number]).fetchone()
    deliver(customer, f"Your order {number}")
    return str(customer)


# One order of a customer at a time. A repeated run changes nothing: `number` is unique.
@app.task(queue="ledger", order_key="customer", result=False)
def book(customer: str, number: int, db: sqlite3.Connection = Depends(database)) -> None:
    db.execute("INSERT OR IGNORE INTO ledger (customer, number) VALUES (?, ?)", [customer, number])


# In a separate process: it uses a whole processor, and is killed if a picture takes too long.
@app.task(queue="images", executor="process", timeout="20s")
def thumbnail(name: str, size: tuple[int, int] = (128, 128)) -> str:
    from PIL import Image

    small = f"small-{name}"
    with Image.open(home() / name) as photo:
        photo.thumbnail(size)
        photo.save(home() / small)
    return small


# Two exports of a seller at a time, so that no seller waits for all exports of another.
@app.task(queue="exports", timeout="10m", concurrency=Concurrency(2, key="seller"))
def export(ctx: Context, seller: str, year: int, db: sqlite3.Connection = Depends(database)) -> str:
    like = [seller, f"{year}-%"]
    orders = db.execute("SELECT day, number, cents FROM orders WHERE seller = ? AND day LIKE ?", like).fetchall()
    lines = ["day,number,cents"]
    for done, order in enumerate(orders, 1):
        if ctx.cancelled:
            return ""
        time.sleep(0.05)  # a real one has more to do
        lines.append(",".join(map(str, order)))
        ctx.progress(done, len(orders), f"{done} of {len(orders)} orders")
    name = f"{seller}-{year}.csv"
    (home() / name).write_text("\n".join(lines))
    return name


# One workflow each night: all orders of the day, each in euro, and their sum.
@app.cron("30 2 * * *", tz="Europe/Paris")
@app.task(result=False)
def nightly(ctx: Context) -> None:
    night = ctx.scheduled_for or datetime.now(UTC)
    day = night.astimezone(PARIS).date() - timedelta(days=1)
    (orders_of.s(day) | in_euro.s().each(limit=50) | report.s(day)).send(run_id=f"nightly-{day}")


@app.task
def orders_of(day: date, db: sqlite3.Connection = Depends(database)) -> list[int]:
    return [number for (number,) in db.execute("SELECT number FROM orders WHERE day = ?", [day.isoformat()])]


# The bank refuses the 21st call of a second.
@app.task(queue="rates", timeout="10s", rate_limit=RateLimit("20/s", strict=True))
def in_euro(number: int, db: sqlite3.Connection = Depends(database)) -> int:
    cents, currency = db.execute("SELECT cents, currency FROM orders WHERE number = ?", [number]).fetchone()
    return int(cents * rate_of(currency))


def rate_of(currency: str) -> float:
    with urllib.request.urlopen(f"{os.environ['SHOP_RATES']}/{currency}", timeout=5) as answer:
        return float(answer.read())


@app.task(idempotency_key="report:{day}")
def report(amounts: list[int], day: date) -> int:
    deliver("owner", f"{len(amounts)} orders on {day}: {sum(amounts) / 100:.2f} EUR")
    return sum(amounts)
