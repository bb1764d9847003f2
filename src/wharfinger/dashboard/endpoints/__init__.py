"""The JSON endpoints: what the page can do, `curl` can do."""

from wharfinger.dashboard.endpoints import changes, screens, trying
from wharfinger.dashboard.endpoints.registry import ENDPOINTS, Endpoint, read_body

__all__ = ["ENDPOINTS", "Endpoint", "changes", "read_body", "screens", "trying"]
