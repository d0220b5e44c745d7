"""What brokers and stores must offer, as Protocols and the values they exchange.

The core talks to RabbitMQ, Redis or SQLite only through this package. A contract states what is guaranteed, which
errors may come out and what may be called twice; `taskmq.testing.BrokerSuite` and `StateSuite` check an adapter
against it.
"""
