"""An emulated engine of oVirt: what the provider's tests speak to.

It is written from the guide of the API, from the engine's own description of its search language,
and from what the SDKs for Python and Go read and write. Both SDKs and the provider inside old
Kubernetes speak to it, too.
"""
