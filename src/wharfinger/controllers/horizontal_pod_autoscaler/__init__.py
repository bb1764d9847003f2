"""HorizontalPodAutoscalers: how many replicas a workload needs, by its metrics.

`replicas` computes a proposal from metrics, `limits` what of it is done now, and the controller reads and writes.
"""

from wharfinger.controllers.horizontal_pod_autoscaler.controller import HorizontalPodAutoscalerController

__all__ = ["HorizontalPodAutoscalerController"]
