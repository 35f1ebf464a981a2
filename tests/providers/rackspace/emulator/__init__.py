"""An emulated Rackspace: identity, Cloud Servers, Cloud Block Storage and Cloud Load Balancers.

Written from Rackspace's published API documents. What Cloud Load Balancers check and answer, where
the documents are silent, is as in the source of the service itself, which Rackspace has published.
"""
