"""SchedulingPolicy: may this pod ask the scheduler for that?

`merge` unites the policies an identity may use, `wishes` reads what a pod asks for, `defaults` and `checks` are the two
steps of an evaluation, `evaluate` puts them together, and `reviewer` turns evaluations into answers of the admission
chain: modes, exemptions, templates, bindings. All of it is pure; `world` says what has to be looked up.
"""
