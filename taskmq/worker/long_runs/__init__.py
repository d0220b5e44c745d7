"""Runs that take longer than the broker lets a worker keep a delivery.

Shortly before the broker's consumer timeout the guard publishes a standby message that replaces the delivery,
and acknowledges the delivery. A lease says who runs the job; if the worker dies, the standby message starts it
again. For a job of the store the scheduler does that, and hears from the worker every ten seconds.
"""
