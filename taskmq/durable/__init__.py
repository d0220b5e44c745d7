"""What keeps a promise while processes and servers come and go: built once, used by every part that makes one.

LeaseKeeper    renews what this process holds under leases
"""
