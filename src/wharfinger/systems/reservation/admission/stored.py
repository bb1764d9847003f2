"""The reviewers for the embedded API server and simulations."""

from __future__ import annotations

from wharfinger.admission.extension import AdmissionContext, SystemReviewers
from wharfinger.systems.reservation.admission.quota import ReservationQuotaReviewer, ReservedQuota, StoredReservedQuota
from wharfinger.systems.reservation.admission.resizing import ResizeReviewer
from wharfinger.systems.reservation.settings import ReservationSettings


def stored_reviewers(context: AdmissionContext) -> SystemReviewers:
    settings = context.configuration.of(ReservationSettings)
    resizes = ResizeReviewer(context.objects, honour_ignored=settings.honour_ignored_label)
    if not settings.charge_quota:
        return SystemReviewers(final=[resizes])
    quota = ReservationQuotaReviewer(StoredReservedQuota(context.objects), context.now)
    return SystemReviewers(final=[resizes, quota], quota=ReservedQuota(quota))
