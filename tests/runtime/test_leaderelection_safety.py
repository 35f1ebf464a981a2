"""Never two leaders, and always one in the end: candidates on a bad network, in virtual time."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.kube.errors import RefusedByGate
from proreus.runtime.leaderelection import LeaderElector, LeadershipLost
from proreus.testing import clock

from .leases import LeaseStore, Network

LEASE, RENEW, RETRY = 15.0, 10.0, 2.0
SETTLE = LEASE + 4 * RETRY


class Replica:
    """A process: restarts when it loses the lease, and is stopped, killed or cut off by chance."""

    def __init__(self, name: str, store: LeaseStore, chance: random.Random) -> None:
        self.name = name
        self.network = Network(store, seed=chance.randrange(2**32))
        self.chance = chance
        self.elector: LeaderElector | None = None
        self.task: asyncio.Task[None] | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        offset = self.chance.uniform(0, 1e6)  # boot times differ between machines
        loop = asyncio.get_running_loop()
        self.elector = LeaderElector(
            self.network, namespace="n", name="l", identity=f"{self.name}-{self.starts}",
            lease_duration=LEASE, renew_deadline=RENEW, retry_period=RETRY,
            clock=lambda: loop.time() + offset, chance=self.chance.random,
        )  # fmt: skip
        self.task = asyncio.create_task(self._lead(self.elector))

    async def _lead(self, elector: LeaderElector) -> None:
        await elector.acquire()
        try:
            await elector.hold()
        except LeadershipLost:
            self.start()

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def kill(self) -> None:
        """End without a word to anybody, as kill -9."""
        self.network.hanging = True
        await self.stop()
        self.network.hanging = False

    @property
    def leads(self) -> bool:
        assert self.elector is not None
        try:
            self.elector.check()
        except RefusedByGate:
            return False
        return True


async def watch(replicas: list[Replica], seconds: float) -> list[int]:
    """The numbers of leaders, looked at ten times a second; never more than one."""
    counts = []
    for _ in range(int(seconds * 10)):
        counts.append(sum(replica.leads for replica in replicas))
        assert counts[-1] <= 1
        await asyncio.sleep(0.1)
    return counts


async def scenario(seed: int, replicas_count: int, loss: float, delay: float) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test must be repeatable
    store = LeaseStore()
    replicas = [Replica(str(number), store, chance) for number in range(replicas_count)]
    for replica in replicas:
        replica.network.loss, replica.network.delay = loss, delay
        replica.start()
    for _ in range(8):
        await watch(replicas, chance.uniform(0, 2 * LEASE))
        victim = chance.choice(replicas)
        match chance.choice(["stop", "kill", "cut off", "let in"]):
            case "stop":
                await victim.stop()
                victim.start()
            case "kill":
                await victim.kill()
                victim.start()
            case "cut off":
                victim.network.loss = 1.0
            case "let in":
                victim.network.loss = loss
    for replica in replicas:
        replica.network.loss = replica.network.delay = 0.0
    await watch(replicas, SETTLE)
    assert sum(await watch(replicas, 10)) == 100
    for replica in replicas:
        await replica.stop()
    assert store.spec["holderIdentity"] == ""


@given(
    seed=st.integers(0, 2**32 - 1),
    replicas=st.integers(2, 4),
    loss=st.sampled_from([0.0, 0.1, 0.5]),
    delay=st.sampled_from([0.0, 0.2, 3.0]),
)
@settings(deadline=None, max_examples=40)
def test_there_are_never_two_leaders_and_one_in_the_end(
    seed: int, replicas: int, loss: float, delay: float
) -> None:
    clock.run(scenario(seed, replicas, loss, delay))
