"""Access to an API server: the client interface with its two implementations (HTTP and in-process), and the parts that
live components build on: informers, work queues, leases, the event recorder, and timers that a simulation can
fast-forward. No scheduling or admission decision is made here.
"""
