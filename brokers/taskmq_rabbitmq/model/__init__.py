"""Knowledge about RabbitMQ that needs no connection. Pure.

Names and arguments of exchanges and queues (`entities`), the delay ladder, URLs, and the meaning of what RabbitMQ
reports: dead-letter headers, refusals, consumer timeouts.
"""
