"""A network in memory: what is sent in it arrives in an order that no machine has a say in.

    run(main())      # as `clock.run`: virtual time, and no socket of this machine

Loopback delivers soon, but not always before the loop looks: where real sockets meet virtual
time, the clock may jump while an answer is on its way, and two runs differ. Here the loop itself
hands over what is written, in its next turn. Everything above sockets is as always: protocols,
HTTP, kept-alive connections, ports that are taken.

Only loopback is there, IPv4, without TLS and without names. Who writes to an end that was closed
gets a reset; what an end has not read when it is closed does not reset the other.
"""

from labs.network.loop import MemoryNetworkLoop, run

__all__ = ["MemoryNetworkLoop", "run"]
