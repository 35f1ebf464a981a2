"""The process that announces addresses from its node, by BGP: the command `proreus bgp-speaker`.

It runs on every node beside an FRR, needs no lease and no cloud, and writes nothing to the API
server. What it decides is in `providers/local/bgp`.
"""
