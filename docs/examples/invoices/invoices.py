"""Tasks and database of the service."""

import os
from functools import cache

from sqlalchemy import ForeignKey, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from taskmq import Context, RetryPolicy, TaskMQ
from taskmq.schedules.triggers import cron

app = TaskMQ()

PAGES = 40
ZONES = {"acme": "Europe/Berlin", "globex": "America/New_York"}


class Table(DeclarativeBase):
    """Base of the tables."""


class Invoice(Table):
    """An invoice with its document."""

    __tablename__ = "invoice"
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    cents: Mapped[int]
    document: Mapped[str | None]


class Mail(Table):
    """A mail that was sent; there is one for each invoice."""

    __tablename__ = "mail"
    invoice: Mapped[int] = mapped_column(ForeignKey("invoice.id"), primary_key=True)
    text: Mapped[str]


class Page(Table):
    """A page of the archive."""

    __tablename__ = "page"
    number: Mapped[int] = mapped_column(primary_key=True)


class Day(Table):
    """A closed day of a tenant."""

    __tablename__ = "day"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    instant: Mapped[str] = mapped_column(primary_key=True)
    cents: Mapped[int]


@cache
def sessions() -> async_sessionmaker[AsyncSession]:
    """Return the sessions of the database."""
    return async_sessionmaker(create_async_engine(os.environ["INVOICES_DATABASE"]))


async def make_tables() -> None:
    """Create the missing tables."""
    async with sessions()() as session, session.begin():
        await (await session.connection()).run_sync(Table.metadata.create_all)


@app.task(queue="documents")
async def render(invoice: int) -> str:
    """Make the invoice's document; the same one when it is called again."""
    async with sessions()() as session, session.begin():
        found = await session.get_one(Invoice, invoice)
        found.document = f"Invoice {invoice}: {found.cents / 100:.2f} EUR"
        return found.document


@app.task(queue="mails", retry=RetryPolicy(max_attempts=4, base="1m"))
async def mail(invoice: int) -> None:
    """Send the invoice's document, once."""
    async with sessions()() as session, session.begin():
        if await session.get(Mail, invoice) is None:
            document = (await session.get_one(Invoice, invoice)).document
            session.add(Mail(invoice=invoice, text=f"Please pay. {document}"))


@app.task(queue="archive", retry=RetryPolicy(max_attempts=6, base="10s"))
async def archive(ctx: Context) -> int:
    """Send all pages to the archive; a later run continues after the last checkpoint."""
    await ctx.resume()
    done = ctx.last_checkpoint or 0
    while done < PAGES:
        await send_page(done + 1)
        done += 1
        await ctx.acheckpoint(done)
        ctx.progress(done / PAGES)
    return done


async def send_page(number: int) -> None:
    """Send one page to the archive; the same page again changes nothing."""
    async with sessions()() as session, session.begin():
        await session.merge(Page(number=number))


@app.task(queue="reports")
async def close_day(ctx: Context) -> None:
    """Sum up a tenant's day."""
    async with sessions()() as session, session.begin():
        open_ = await session.scalars(select(Invoice.cents).where(Invoice.tenant == ctx.tenant))
        session.add(Day(tenant=ctx.tenant or "", instant=f"{ctx.scheduled_for}", cents=sum(open_)))


def close_days() -> None:
    """Close each tenant's day at half past two in its own time zone. Repeating this changes nothing."""
    for tenant, zone in ZONES.items():
        rule = cron("30 2 * * *", tz=zone)
        app.schedules.add(f"@{tenant}:close the day", close_day, rule, catchup="all")
