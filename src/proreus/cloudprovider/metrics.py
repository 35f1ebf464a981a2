"""Where a provider registers metrics of its own, beside those of `Context.call`.

Make them once, when the module is imported: a provider is started anew after each change of the
cloud-config. Their names begin with the provider's.
"""

from proreus.runtime.metrics import REGISTRY

__all__ = ["REGISTRY"]
