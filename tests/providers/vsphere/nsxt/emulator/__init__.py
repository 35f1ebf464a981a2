"""An emulator of NSX-T's policy API on a real socket with TLS, written from the published model.

    async with served(directory) as nsxt:          # .server; directory: where its CA's file goes
        nsxt.host, nsxt.url, nsxt.ca_file          # 127.0.0.1:port, https://…, PEM
        nsxt.config(insecure_flag="true")          # the section [NSXT] of the official config
        nsxt.of("lb-virtual-servers")              # what is there, by kind
        nsxt.calls["PUT lb-pools"], nsxt.log       # requests: counted() takes those since last time
        nsxt.fail(Fault("PUT lb-*", status=503, after_effect=True, times=2))
        nsxt.fail(Fault("LIST ip-allocations", status=0, seconds=2.0))        # only slow
        nsxt.put(path, **body), nsxt.changing(path), nsxt.remove(path)        # somebody else's hand
        nsxt.realization.works = 1.0               # seconds until a write is realized
        nsxt.realization.never, .broken            # what is never, or with an alarm
        nsxt.store.purges = 5.0                    # deleted objects stay marked, their path unusable
        nsxt.store.partial = True                  # a PATCH leaves what it does not name
        nsxt.rate, nsxt.concurrency, nsxt.page, nsxt.search_lag
        nsxt.sessions.users, .readers, .remote, .expire(), .register(name, certificate)
        nsxt.now                                   # the clock of all this, in seconds

A fresh one has the system's profiles, the tier-1 gateway `world.GATEWAY` and the IP pool
`world.POOL` with ten addresses; `world.add_pool` makes more. Addresses that are released stay in
use for the pool's `ip_release_delay`, two minutes unless it says otherwise.

Operations and types are those of the vendor's SDK (`model.json`, made by `python -m
tests.providers.vsphere.nsxt.emulator.record`), what they may hold is in `limits.py` and `rules.py`.
As the vendor documents it, a PUT must have the current `_revision`, a PATCH replaces the whole
object without it, what is referred to or has children is not deleted, and an address that is asked
for of an IP pool is to be read from the realized entities later, where an exhausted pool is an
alarm, too.
"""
