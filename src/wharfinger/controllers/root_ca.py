"""Publishes the certificate authority of the API server in every namespace, as the ConfigMap `kube-root-ca.crt`."""

from __future__ import annotations

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound, is_terminating_namespace
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES
from wharfinger.api.registry import Document
from wharfinger.api.views import Namespace
from wharfinger.controllers.context import ContextController, ControllerContext

NAME = "kube-root-ca.crt"
KEY = "ca.crt"
_DESCRIPTION = "kubernetes.io/description"
_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class RootCaPublisher(ContextController[str]):
    """Does nothing without a certificate authority: a simulation has no server to trust."""

    name = "root-ca-cert-publisher"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._data = {KEY: context.root_ca}
        if not context.root_ca:
            return
        self._namespaces = context.informers.of(NAMESPACES, Namespace)
        self._published = context.documents(CONFIG_MAPS, field_selector=f"metadata.name={NAME}")
        self._namespaces.add_handler(self._seen, lambda old, new: self._seen(new))
        self._published.add_handler(on_update=lambda old, new: self._changed(new), on_delete=self._changed)

    async def reconcile(self, key: str) -> None:
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.status.phase == "Terminating" or namespace.metadata.deletion_timestamp:
            return
        current = self._published.get(NAME, key)
        try:
            if current is None:
                await self.client.create(CONFIG_MAPS, self._wanted(key), key)
            elif not self._is_intact(current):
                annotations = {**(current["metadata"].get("annotations") or {}), _DESCRIPTION: _TEXT}
                metadata = {**current["metadata"], "annotations": annotations}
                restored = {**current, "metadata": metadata, "data": self._data}
                await self.client.update(CONFIG_MAPS, restored, key, name=NAME)
        except ApiError as error:
            if not isinstance(error, AlreadyExists | NotFound) and not is_terminating_namespace(error):
                raise

    def _wanted(self, namespace: str) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace, "annotations": {_DESCRIPTION: _TEXT}},
            "data": self._data,
        }

    def _is_intact(self, current: Document) -> bool:
        annotations = current["metadata"].get("annotations") or {}
        return current.get("data") == self._data and bool(annotations.get(_DESCRIPTION))

    def _seen(self, namespace: Namespace) -> None:
        self.queue.add(namespace.metadata.name)

    def _changed(self, document: Document) -> None:
        self.queue.add(document["metadata"]["namespace"])
