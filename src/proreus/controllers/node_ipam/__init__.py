"""The controller `node-ipam-controller`: blocks of pod addresses for nodes."""
