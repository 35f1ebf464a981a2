"""The vendor's SDK for Python, whose own source Python warns about."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from baidubce.auth.bce_credentials import BceCredentials
    from baidubce.auth.bce_v1_signer import sign
    from baidubce.bce_client_configuration import BceClientConfiguration
    from baidubce.exception import BceHttpClientError
    from baidubce.retry.retry_policy import NoRetryPolicy
    from baidubce.services.bcc.bcc_client import BccClient
    from baidubce.services.blb.blb_client import BlbClient
    from baidubce.services.eip.eip_client import EipClient
    from baidubce.services.eip.model import Billing
    from baidubce.services.route.route_client import RouteClient

__all__ = [
    "BccClient",
    "BceClientConfiguration",
    "BceCredentials",
    "BceHttpClientError",
    "Billing",
    "BlbClient",
    "EipClient",
    "NoRetryPolicy",
    "RouteClient",
    "sign",
]
