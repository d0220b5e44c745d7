"""Long runs: runs that exceed the time for which the broker lets a worker keep a delivery.

Shortly before the broker's consumer timeout the guard publishes a standby message that replaces the delivery, and
acknowledges the delivery. A lease records which worker runs the job; if the worker dies, the standby message starts
the job again. For a stored job the scheduler does that, and the worker reports to it every ten seconds.
"""
