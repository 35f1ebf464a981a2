"""The demo: a real control plane, a simulated cloud and the manager, and a story about them.

`stage` sets everything up, `story` plays and tells it, `node_ports` stands for kube-proxy.
"""
