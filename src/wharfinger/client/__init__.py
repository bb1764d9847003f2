"""The one way to an API server: an interface, its two implementations (HTTP and in process), and what live parts build on it.

Here live informers, work queues, leases, the event recorder and the timers that simulation can fast-forward. No decision
is made here.
"""
