"""Admission: may this request pass, and changed how? One file for each concern, each a pure review.

A concern takes a `Request` and what it needs of the world, and answers with a `Review`. Nothing here does I/O: who calls
it (the store in process, the webhook server on a real cluster) gathers the world and carries the answer out.
"""
