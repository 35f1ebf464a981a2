"""Register a provider's own metrics, beside those that `Context.call` counts.

Make them once, when the module is imported: a provider is started anew after each change of the
cloud-config. Their names begin with the provider's.
"""

from proreus.runtime.metrics import REGISTRY

__all__ = ["REGISTRY"]
