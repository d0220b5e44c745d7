"""AMQP frames and the connection that carries them, on top of pika.

`frames` reads and writes the frames of the hot path (deliver, publish, ack, nack, confirms); `fast_connection` puts
them beside pika's own, which handle everything else. `?wire=plain` leaves all frames to pika: the tested reference.
"""
