"""An emulator of the API of Rancher 1.x (Cattle), v1 and v2-beta, on a real socket.

It describes itself as Rancher does (`schemas`), so that generic clients can speak to it: types,
fields, actions and filters are those of Rancher's own descriptions of both versions, reduced to what
load balancers and hosts need. It validates every field, drops silently what cannot be written and
ignores filters that it does not know, as Rancher does, and notes both; it shows lists in pages of
joined rows, offers actions by state, works for as long as it is told to, and fails before or after
the effect of a request when a test asks.
"""
