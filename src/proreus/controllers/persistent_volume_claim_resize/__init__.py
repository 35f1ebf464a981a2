"""Refuse claims that cannot grow: the webhook `persistentvolumeclaim-resize`."""
