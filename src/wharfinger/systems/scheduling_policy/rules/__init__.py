"""The rules of SchedulingPolicy; all of them are pure.

`merge` combines the policies that an identity may use, `wishes` reads what a pod asks for, `defaults` and `checks` are
the two steps of an evaluation, and `evaluate` combines them. `lookup` declares what has to be looked up.
"""
