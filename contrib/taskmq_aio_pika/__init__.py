"""Jobs over the caller's own aio-pika connection: `pip install 'taskmq[aio-pika]'`.

    import aio_pika
    from taskmq_aio_pika import send

    async with await aio_pika.connect("amqp://localhost/") as connection:
        channel = await connection.channel()
        job = await send(channel, resize, 7)                       # confirmed
        job = await send(channel, resize.options(delay="5m"), 7)

        quiet = await connection.channel(publisher_confirms=False)
        async with quiet.transaction() as transaction:
            await send(transaction, resize, 7)                     # counts once the transaction commits

The message is the one that `resize.send(7)` publishes, and goes to the same exchanges, so any worker of the app runs
it. `send` declares nothing: a worker, another producer or `taskmq topology apply` creates the queue.

A beat also uses this package to consume queues of other systems: `@app.on(amqp("amqp://crm/", queue="orders"))`, see
`taskmq.reactions.amqp`. It calls `open_source` for that.
"""

from taskmq_aio_pika.producer import send
from taskmq_aio_pika.source import open_source

__all__ = ["open_source", "send"]
