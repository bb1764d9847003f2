"""The stock kube-scheduler plugins: a module each, or a package for a family that shares code. Pure.

A module lists its plugin classes in `plugins`; `wharfinger.engine.registry` finds them there.
"""
