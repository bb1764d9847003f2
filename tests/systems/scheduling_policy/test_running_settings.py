"""Commands that ask a running `wharf up` use the configuration that it runs with."""

import asyncio

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.apiserver.bootstrap import bootstrap, publish_configuration
from wharfinger.client.local import LocalClient
from wharfinger.client.running_configuration import running_configuration
from wharfinger.simulate.inputs import Inputs
from wharfinger.store import Store
from wharfinger.systems.reservation.settings import ReservationSettings
from wharfinger.systems.scheduling_policy.commands.policy_world import world_of_cluster
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

CONFIGURED = Configuration(scheduler={"profiles": [{"schedulerName": "own"}]}).having(
    SchedulingPolicySettings(mode="audit"), ReservationSettings(charge_quota=True)
)


def test_the_configuration_that_a_server_publishes_is_the_one_that_is_read() -> None:
    async def ask() -> None:
        store = Store(registry())
        await bootstrap(store)
        client = LocalClient(store)
        assert await running_configuration(client) is None
        await publish_configuration(store, CONFIGURED)
        found = await running_configuration(client)
        assert found is not None
        assert (found.scheduler, found.nodes, set(found.blocks)) == (
            CONFIGURED.scheduler,
            CONFIGURED.nodes,
            set(CONFIGURED.blocks),
        )
        assert (await world_of_cluster(client, Inputs())).settings.mode == "audit"
        await publish_configuration(store, Configuration())  # a later start without one
        assert await running_configuration(client) is None
        assert (await world_of_cluster(client, Inputs())).settings == SchedulingPolicySettings()

    asyncio.run(ask())
