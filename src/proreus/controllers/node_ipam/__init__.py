"""Allocate blocks of pod addresses to nodes: the controller `node-ipam-controller`."""
