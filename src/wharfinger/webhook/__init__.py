"""The admission webhooks for a real cluster: our reviews behind HTTPS, in the words of AdmissionReview.

What is reviewed stands in `handlers`, a file each; they gather what a pure review of `wharfinger.admission` needs. The
server here only carries questions and answers, and refuses what it cannot decide.
"""
