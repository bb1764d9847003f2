"""Certificate signing requests: approval of those of kubelets, signatures of Kubernetes' signers, and clean-up."""

from wharfinger.controllers.certificates.approving import CertificateApprover
from wharfinger.controllers.certificates.cleaning import CertificateRequestCleaner
from wharfinger.controllers.certificates.signing import CertificateSigner

__all__ = ["CertificateApprover", "CertificateRequestCleaner", "CertificateSigner"]
