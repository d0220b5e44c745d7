"""The contract of brokers, for adapters and their tests.

The core imports `taskmq.contracts.broker`; these are the same names, where users look for them.
"""

from taskmq.contracts.broker import (
    Alarming,
    Archiving,
    Broadcasting,
    Broker,
    BrokerOptions,
    Browser,
    Consumer,
    Deleting,
    Delivery,
    Diagnosable,
    HeaderValue,
    Listening,
    Outgoing,
    PublishingMany,
    QueueStats,
    Revocable,
    Subscription,
    TimeLimited,
)

__all__ = [
    "Alarming",
    "Archiving",
    "Broadcasting",
    "Broker",
    "BrokerOptions",
    "Browser",
    "Consumer",
    "Deleting",
    "Delivery",
    "Diagnosable",
    "HeaderValue",
    "Listening",
    "Outgoing",
    "PublishingMany",
    "QueueStats",
    "Revocable",
    "Subscription",
    "TimeLimited",
]
