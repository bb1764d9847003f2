"""For score producers, on the hub or on a member cluster: normalise measurements, publish them and keep them valid.

    from wharfinger.client.connect import connect
    from wharfinger.systems.placement.scores import Linear, ScorePublisher

    publisher = ScorePublisher(connect("hub.kubeconfig"), "latency", valid_for=300)
    await publisher.publish("cluster1", {"rtt": Linear(200, 5).score(measured)})

`run_producer` does so periodically, well before the scores expire; `of_known_clusters` leaves out clusters that the hub
does not have.
"""

from wharfinger.systems.placement.scores.normalise import Linear, Relative, normalise
from wharfinger.systems.placement.scores.publish import ScorePublisher, of_known_clusters, run_producer

__all__ = ["Linear", "Relative", "ScorePublisher", "normalise", "of_known_clusters", "run_producer"]
