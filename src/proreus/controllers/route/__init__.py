"""Keep the cloud's routes to the pods of nodes: the controller `node-route-controller`."""
