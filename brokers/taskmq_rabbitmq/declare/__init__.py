"""Making sure that the exchanges, queues and bindings a message needs exist before it is published."""
