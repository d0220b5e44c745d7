"""What operators ask of RabbitMQ: the doctor, policies, definitions, and what is missing at the broker."""
