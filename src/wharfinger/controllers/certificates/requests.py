"""What the controllers of certificate signing requests share: a key for each request that is seen or changes."""

from __future__ import annotations

from wharfinger.api.kinds.builtin import CERTIFICATE_SIGNING_REQUESTS
from wharfinger.api.registry import Document
from wharfinger.controllers.context import ContextController, ControllerContext


class CertificateRequestController(ContextController[str]):
    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._requests = context.documents(CERTIFICATE_SIGNING_REQUESTS)
        self._requests.add_handler(self._seen, lambda old, new: self._seen(new))

    def _seen(self, document: Document) -> None:
        self.queue.add(document["metadata"]["name"])
