"""The web application of the service."""

from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from invoices import Invoice, app, archive, mail, render, sessions

web = FastAPI(title="Invoices")
Tenant = Annotated[str, Header(alias="x-tenant")]


@web.post("/invoices", status_code=201)
async def write(cents: int, tenant: Tenant) -> dict[str, Any]:
    """Write an invoice and submit its jobs, which render and then mail it, in one transaction."""
    async with sessions()() as session, session.begin():
        invoice = Invoice(tenant=tenant, cents=cents)
        session.add(invoice)
        await session.flush()
        number = invoice.id
        rendered = await app.jobs.asubmit(
            render, number, job_id=f"render-{number}", tenant=tenant, connection=session
        )
        await app.jobs.asubmit(
            mail,
            number,
            job_id=f"mail-{number}",
            tenant=tenant,
            depends_on=[rendered],
            connection=session,
        )
        if cents <= 0:
            raise HTTPException(422, "an invoice over nothing")
    return {"invoice": number, "job": f"mail-{number}"}


@web.put("/archive/{year}", status_code=202)
async def begin_archive(year: int, tenant: Tenant) -> dict[str, str]:
    """Send the archive of a year; a second request finds the same job."""
    job = await app.jobs.asubmit(archive, job_id=f"archive-{year}", tenant=tenant)
    return {"job": job.id}


@web.post("/archive/{year}/retry", status_code=202)
async def retry_archive(year: int, tenant: Tenant) -> dict[str, str]:
    """Resume a failed archive: the same job, with the same id."""
    job = await app.jobs.aretry(f"archive-{year}", tenant=tenant, note="retried on the page of the archive")
    return {"job": job.id}


@web.get("/archive/{year}")
async def how_far(year: int, tenant: Tenant) -> dict[str, Any]:
    """Report the state of the archive of a year."""
    job = app.job(f"archive-{year}", tenant=tenant)
    return {"state": await job.astate()}
