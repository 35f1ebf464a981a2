"""An emulator of Azure Resource Manager on real sockets, written from Azure's documents.

It keeps resources by their ids, validates what is written, fills in what Azure fills in, refuses
what Azure refuses, and answers pages, ETags, long-running operations, quotas and rights as Azure
does. It can be told to fail before or after the effect of a request.
"""
