"""Administration of RabbitMQ: the doctor, policies, definitions, and missing objects."""
