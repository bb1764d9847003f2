"""Admission that users configure at run time: webhooks and ValidatingAdmissionPolicies, matched, called and evaluated as
kube-apiserver does it.

`matching` decides which requests a webhook or policy applies to, `review` presents a request as an AdmissionReview or as CEL
variables, `webhooks` and `policies` are the two reviewers, and `registration` validates the expressions in their objects.
"""
