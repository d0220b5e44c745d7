"""Contracts of brokers and stores, as Protocols and the values they exchange.

The core talks to RabbitMQ, Redis or SQLite only through this package. A contract states its guarantees, its errors,
and the calls that may be repeated; `taskmq.testing.BrokerSuite` and `StateSuite` check an adapter against it.
"""
