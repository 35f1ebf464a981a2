"""The controller `node-route-controller`: routes from the cloud's network to the pods of nodes."""
