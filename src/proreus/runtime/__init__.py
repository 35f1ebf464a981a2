"""Run controllers: informer, work queue, loop, election, events. Knows no cloud."""
