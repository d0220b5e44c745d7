"""Declaration of the exchanges, queues and bindings that a message needs, before it is published."""
