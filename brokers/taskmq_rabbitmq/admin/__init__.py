"""What operators ask of RabbitMQ: the doctor, policies, definitions, and the comparison of what is wanted with what exists."""
