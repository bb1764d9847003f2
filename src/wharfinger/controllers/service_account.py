"""Creates the service account `default` in every namespace."""

from __future__ import annotations

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound, is_terminating_namespace
from wharfinger.api.kinds.builtin import NAMESPACES, SERVICE_ACCOUNTS
from wharfinger.api.views import Namespace, ServiceAccount
from wharfinger.controllers.context import ContextController, ControllerContext

NAME = "default"


class ServiceAccountController(ContextController[str]):
    name = "serviceaccount"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._namespaces = context.informers.of(NAMESPACES, Namespace)
        self._accounts = context.informers.of(SERVICE_ACCOUNTS, ServiceAccount)
        self._namespaces.add_handler(self._seen, lambda old, new: self._seen(new))
        self._accounts.add_handler(on_delete=self._deleted)

    async def reconcile(self, key: str) -> None:
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp or self._accounts.get(NAME, key) is not None:
            return
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": key}}
        try:
            await self.client.create(SERVICE_ACCOUNTS, account, key)
        except ApiError as error:
            if not isinstance(error, AlreadyExists | NotFound) and not is_terminating_namespace(error):
                raise

    def _seen(self, namespace: Namespace) -> None:
        if self._accounts.get(NAME, namespace.metadata.name) is None:
            self.queue.add(namespace.metadata.name)

    def _deleted(self, account: ServiceAccount) -> None:
        if account.metadata.name == NAME:
            self.queue.add(account.metadata.namespace)
