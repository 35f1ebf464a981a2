"""Controller machinery: informer, work queue, controller loop, election. Knows no cloud."""
