"""Racks: groups of nodes that can be closed for new pods. Start with the README of this example.

Methods of a system import what they return, so that listing the systems loads none of their code.
"""

from wharfinger.system import System, command_of


class RackSystem(System):
    name = "racks"

    def kinds(self):
        from wharfinger_racks.kinds import KINDS

        return KINDS

    def plugins(self):
        from wharfinger_racks.plugin import ClosedRacks

        return (ClosedRacks,)

    def reviewers(self, context):
        from wharfinger.admission.extension import SystemReviewers
        from wharfinger_racks.admission import RackReviewer

        return SystemReviewers(validating=(RackReviewer(context.objects),))

    def controllers(self):
        from wharfinger_racks.controllers import RackController

        return {"rack": RackController}

    def commands(self):
        return {"racks": command_of("wharfinger_racks.commands")}

    def report(self):
        from wharfinger_racks.report import RackReport

        return RackReport()

    def installation(self):
        from wharfinger.contributions import EmbeddedAccess, Installation, RoleRule

        return Installation(embedded=EmbeddedAccess(scheduler=(RoleRule("example.com", "racks", "get list watch"),)))


system = RackSystem()
