"""For producers of scores: normalise what you measure, publish it, and keep it valid; on the hub or on a member.

    from wharfinger.client.connect import connect
    from wharfinger.scores import Linear, ScorePublisher

    publisher = ScorePublisher(connect("hub.kubeconfig"), "latency", valid_for=300)
    await publisher.publish("cluster1", {"rtt": Linear(200, 5).score(measured)})

`run_producer` does so again and again, well before the scores expire.
"""

from wharfinger.systems.placement.scores.normalise import Linear, Relative, normalise
from wharfinger.systems.placement.scores.publish import ScorePublisher, run_producer

__all__ = ["Linear", "Relative", "ScorePublisher", "normalise", "run_producer"]
