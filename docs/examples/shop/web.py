"""The shop's web page: `uvicorn web:web`."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import shop
from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import HTMLResponse, JSONResponse

from taskmq import InvalidArguments, JobState, SendError, StateUnavailable


@contextlib.asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with shop.app:
        yield


web = FastAPI(lifespan=lifespan)


def seller(x_seller: Annotated[str, Header()]) -> str:
    return x_seller  # in a real shop: the user who is logged in


def database() -> Iterator[sqlite3.Connection]:
    yield from shop.database()


Seller = Annotated[str, Depends(seller)]
Database = Annotated[sqlite3.Connection, Depends(database)]


@web.exception_handler(SendError)
@web.exception_handler(StateUnavailable)
def not_now(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, InvalidArguments):
        return JSONResponse({"error": str(error)}, 422)
    return JSONResponse({"error": "try again"}, 503, {"Retry-After": "2"})


@web.get("/", response_class=HTMLResponse)
def page() -> str:
    return Path(__file__).with_name("page.html").read_text()


@web.put("/orders/{key}", status_code=202)
def order(
    key: UUID, seller: Seller, customer: Annotated[str, Body()], cents: Annotated[int, Body()], currency: str = "EUR"
) -> dict[str, int]:
    """Place an order. The browser repeats the request with one key until it gets an answer."""
    day = datetime.now(shop.PARIS).date().isoformat()
    with contextlib.contextmanager(shop.database)() as db:
        db.execute(
            "INSERT OR IGNORE INTO orders (key, customer, seller, cents, currency, day) VALUES (?, ?, ?, ?, ?, ?)",
            [str(key), customer, seller, cents, currency, day],
        )
        (number,) = db.execute("SELECT number FROM orders WHERE key = ?", [str(key)]).fetchone()
    shop.confirm.send(number)
    shop.book.send(customer, number)
    return {"order": number}


@web.put("/photos/{key}", status_code=202)
async def photo(key: UUID, seller: Seller, request: Request) -> None:
    (shop.home() / f"{key}.png").write_bytes(await request.body())
    await shop.thumbnail.options(tenant=seller, job_id=str(key)).asend(f"{key}.png")


@web.put("/exports/{key}", status_code=202)
async def export(key: UUID, seller: Seller, year: int) -> None:
    await shop.export.options(tenant=seller, job_id=str(key)).asend(seller, year)


@web.get("/jobs/{key}")
async def job(key: UUID, seller: Seller) -> dict[str, Any]:
    found = shop.app.job(str(key), tenant=seller)
    state = await found.astate()
    if state is JobState.SUCCEEDED:
        return {"state": state, "file": await found.aresult(timeout="3s")}
    progress = await found.aprogress()
    shown = JobState.QUEUED if state is JobState.UNKNOWN else state
    return {"state": shown, "done": progress.fraction if progress else 0, "note": progress.note if progress else ""}


@web.delete("/jobs/{key}", status_code=202)
async def cancel(key: UUID, seller: Seller) -> None:
    await shop.app.job(str(key), tenant=seller).acancel(f"cancelled by {seller}")
