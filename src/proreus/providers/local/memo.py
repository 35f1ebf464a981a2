"""Keep the state as comments in the kernel, so that a new process can go on.

Each balancer, each pool and all machines together are one chain that nothing jumps to. Its rules
do nothing; their comments, put together, hold the value.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from proreus.providers.local.plan import Balancer, Machine, Pool, State

BALANCER: Final = "memo-service-"
POOL: Final = "memo-pool-"
MACHINES: Final = "memo-nodes"

_LONGEST: Final = 120
_T = TypeVar("_T")


def written(state: State) -> Mapping[str, tuple[str, ...]]:
    """Return the state as comments, by the name of their chain."""
    memos = {BALANCER + uid: _chunks(one) for uid, one in state.balancers.items()}
    memos |= {POOL + key: _chunks(one) for key, one in state.pools.items()}
    if state.machines:
        memos[MACHINES] = _chunks(state.machines)
    return memos


def read(chains: Mapping[str, Sequence[str]]) -> State:
    """Return the state from comments, without incomplete parts.

    A balancer is left out if it, or a pool or a machine of it, cannot be read: the next `ensure`
    makes it anew, with the address in the Service's status.
    """
    machines = _value(chains.get(MACHINES, ()), dict[str, Machine]) or {}
    pools = {
        key: pool
        for key, pool in _all(chains, POOL, Pool).items()
        if all(member.node in machines for member in pool.members)
    }
    balancers = {
        uid: one
        for uid, one in _all(chains, BALANCER, Balancer).items()
        if all(key in pools for key in one.pools.values())
    }
    return State(balancers, pools, machines)


def _all(chains: Mapping[str, Sequence[str]], prefix: str, kind: type[_T]) -> dict[str, _T]:
    found = {
        name.removeprefix(prefix): _value(comments, kind)
        for name, comments in chains.items()
        if name.startswith(prefix)
    }
    return {name: value for name, value in found.items() if value is not None}


def _chunks(value: object) -> tuple[str, ...]:
    packed = zlib.compress(msgspec.json.encode(value, order="sorted"))
    text = base64.b64encode(packed).decode()
    return tuple(text[at : at + _LONGEST] for at in range(0, len(text), _LONGEST))


def _value(comments: Sequence[str], kind: type[_T]) -> _T | None:
    try:
        packed = base64.b64decode("".join(comments), validate=True)
        return msgspec.json.decode(zlib.decompress(packed), type=kind)
    except (ValueError, binascii.Error, zlib.error, msgspec.DecodeError):
        return None
