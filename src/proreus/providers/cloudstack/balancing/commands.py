"""Take the steps of a plan: each is one command of CloudStack."""

import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from proreus.cloudprovider.errors import CloudError, RetryAfter, Throttled, Unauthenticated
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.lookups import Recent
from proreus.cloudprovider.ownership import Owner
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.waits import Working
from proreus.providers.cloudstack.api import Api, Described
from proreus.providers.cloudstack.balancing import documents, owners
from proreus.providers.cloudstack.balancing.claims import Claims
from proreus.providers.cloudstack.balancing.parts import Address, Network, Observed, Rule
from proreus.providers.cloudstack.balancing.plan import (
    Acquire,
    Assign,
    ChangeRule,
    Claim,
    Close,
    DropRule,
    HandOver,
    MakeRule,
    MarkAddress,
    MarkRules,
    Open,
    Release,
    Step,
    Stick,
    Unassign,
    Unclaim,
    Unstick,
    Wait,
    sources,
)
from proreus.providers.cloudstack.balancing.preview import after
from proreus.providers.cloudstack.balancing.reading import Reader
from proreus.providers.cloudstack.errors import is_removed
from proreus.providers.cloudstack.works import Works

log = logging.getLogger(__name__)

Parameters = dict[str, str]
Command = tuple[str, Parameters]
Result = tuple[str, Described]
Run = Callable[[], Awaitable[Result]]

TAGS_GO_SINCE = (4, 18)
"""The version since which an address surely loses its tags when it is released.

Before that they could stay for whoever acquires it next (apache/cloudstack, issue 6620).
"""
_AGAIN = 1.0
_REMOVALS = DropRule | Close | Release | Unassign | Unstick


class Commands:
    """The commands that change load balancers, for one Service at a time."""

    def __init__(
        self,
        api: Api,
        works: Works,
        reader: Reader,
        claims: Claims,
        hosts: Recent[Described | None],
    ) -> None:
        """Keep the client of CloudStack, and who reads it."""
        self._api = api
        self._works = works
        self._reader = reader
        self._claims = claims
        self._hosts = hosts
        # By the Service's uid: the network and the address that an unfinished job acquires.
        self._acquiring: dict[str, tuple[str, str]] = {}
        # By the Service's uid: addresses without marks that are still to be released, each with the
        # time when it was acquired.
        self._leaving: dict[str, dict[str, str]] = {}

    async def settle(self, ref: LoadBalancerRef, *, is_deletion: bool) -> None:
        """Wait for the jobs that an earlier verb has left; let go an address that one has refused.

        A claim goes, too, that the refused Service has in vain. What CloudStack does not release
        keeps a deletion from its end, and nothing else.

        Raises:
            Working: CloudStack still works on one.
            CloudError: A job failed, or CloudStack gives no usable answer.
        """
        try:
            await self._works.settle(ref.uid)
        except Refused:
            if (acquiring := self._acquiring.pop(ref.uid, None)) is not None:
                await self._let_go(ref, *acquiring)
            raise
        self._acquiring.pop(ref.uid, None)
        if network := self._claims.idle(ref):
            await self.untag(ref, "Network", (network,), (owners.claim_key(ref),))
        try:
            await self._release_rest(ref)
        except (CloudError, Working) as error:
            if is_deletion:
                raise
            log.warning("A former address of %s is not released yet: %s", ref.key, error)

    async def take(
        self, ref: LoadBalancerRef, network: Network | None, observed: Observed, step: Step
    ) -> Callable[[Observed], Observed]:
        """Take a step; return a function from the state observed before it to the state after it.

        Args:
            ref: The Service.
            network: The network of the Service's hosts; None in deletions, which need none.
            observed: The observed state before the step.
            step: The step to take.

        Raises:
            Working: CloudStack still works on the step.
            CloudError: CloudStack refuses, or does not answer.
        """
        step = await self._instead(ref, step)
        if isinstance(step, HandOver):
            await self._hand_over(ref, observed, step)
            return lambda now: after(now, step)
        if isinstance(step, Release):
            await self._strip(ref, step.id)
        command, parameters = command_for(step, ref, network, observed.address, self._api)
        run = functools.partial(self._works.run, ref.uid, command, parameters)
        try:
            if isinstance(step, Acquire) and step.ip and network is not None:
                id_, result = await self._acquire(ref, network.id, step.ip, run)
            else:
                id_, result = await run()
        except (Unauthenticated, Refused) as error:
            if isinstance(step, Claim):
                return self._without_claim(step, error)
            if not isinstance(error, Refused):
                raise
            if isinstance(step, Assign):
                self._hosts.forget()
            if not (isinstance(step, _REMOVALS) and is_removed(error)):
                raise
            id_, result = "", {}
        if isinstance(step, Release):
            self._leaving.get(ref.uid, {}).pop(step.id, None)
        ip = str((result.get("ipaddress") or {}).get("ipaddress") or "")
        return lambda now: after(now, step, id_, ip)

    async def _instead(self, ref: LoadBalancerRef, step: Step) -> Step:
        """Return the step to take in place of a planned one, by what CloudStack shows now.

        Raises:
            Working: CloudStack deletes a rule still.
            CloudError: CloudStack gives no usable answer.
        """
        if isinstance(step, Wait):
            if not self._works.waits.has_waited(ref.uid):
                raise Working("CloudStack deletes a rule of the load balancer")
            # The job has failed, and has left the rule in its last state.
            return DropRule(step.rule)
        if isinstance(step, Release) and await self._reader.is_in_use(step.id):
            # The Service's own rules are gone by now: somebody else uses it, and would lose it.
            return HandOver(step.id)
        return step

    async def tag(
        self, ref: LoadBalancerRef, kind: str, ids: Iterable[str], tags: Mapping[str, str]
    ) -> None:
        """Put tags on objects."""
        parameters = {"resourcetype": kind, "resourceids": ",".join(ids), **_map(tags)}
        await self._works.run(ref.uid, "createTags", parameters)

    async def untag(
        self, ref: LoadBalancerRef, kind: str, ids: Iterable[str], keys: Iterable[str]
    ) -> None:
        """Take tags from objects, whatever their values."""
        named = {f"tags[{number}].key": key for number, key in enumerate(keys)}
        parameters = {"resourcetype": kind, "resourceids": ",".join(ids), **named}
        await self._works.run(ref.uid, "deleteTags", parameters)

    def _without_claim(self, step: Claim, error: CloudError) -> Callable[[Observed], Observed]:
        """Go on without a claim where the network cannot be tagged, such as another account's.

        Without a claim, a process that ends right after it has acquired the address leaves it
        behind.
        """
        log.info("An address is acquired without a claim on the network: %s", error)
        return lambda now: after(now, step)

    async def _acquire(self, ref: LoadBalancerRef, network: str, ip: str, run: Run) -> Result:
        """Acquire an address; let it go if CloudStack refuses it."""
        self._claims.tried(ref, ip, is_refused=False)
        try:
            return await run()
        except Refused as error:
            await self._let_go(ref, network, ip)
            raise RetryAfter(f"another address is chosen: {error}", after=_AGAIN) from error
        except (Throttled, Unauthenticated):
            if not self._works.is_open(ref.uid):  # so nothing was begun
                await self._let_go(ref, network, ip)
            raise
        finally:
            if self._works.is_open(ref.uid):
                self._acquiring[ref.uid] = network, ip

    async def _let_go(self, ref: LoadBalancerRef, network: str, ip: str) -> None:
        """Remove the claim on an address that CloudStack has refused: somebody else may have it."""
        self._claims.tried(ref, ip, is_refused=True)
        self._reader.forget(ref.uid)
        await self.untag(ref, "Network", (network,), (owners.claim_key(ref),))

    async def _strip(self, ref: LoadBalancerRef, id_: str) -> None:
        """Remove the marks of an address that is to be released, if they could stay on it.

        By them it would be the Service's again once somebody else acquires it.
        """
        if await self._api.version() >= TAGS_GO_SINCE:
            return
        one = await self._reader.address(id_)
        if one is not None and owners.has_tags_of(one, ref):
            self._leaving.setdefault(ref.uid, {})[id_] = str(one.get("allocated"))
            await self.untag(ref, "PublicIpAddress", (id_,), owners.service_marks(ref))

    async def _release_rest(self, ref: LoadBalancerRef) -> None:
        """Release what has no marks any more, and nobody else has acquired since or uses."""
        jobs = f"{ref.uid}/former addresses"
        await self._works.settle(jobs)
        for id_, since in tuple(self._leaving.get(ref.uid, {}).items()):
            one = await self._reader.address(id_)
            is_left = one is not None and str(one.get("allocated")) == since
            is_bare = one is not None and not owners.owners_of(one)
            if is_left and is_bare and not await self._reader.is_in_use(id_):
                await self._release(jobs, id_)
            self._leaving[ref.uid].pop(id_, None)
        self._leaving.pop(ref.uid, None)

    async def _release(self, jobs: str, id_: str) -> None:
        try:
            await self._works.run(jobs, "disassociateIpAddress", {"id": id_})
        except Refused as error:
            if not is_removed(error):
                raise

    async def _hand_over(self, ref: LoadBalancerRef, observed: Observed, step: HandOver) -> None:
        """Replace the marks on an address by those of another Service that uses it, if any."""
        users = await self._reader.users(step.id, observed.rules)
        others = [one for user in users for one in owners.owners_of(user)]
        heir = next((one for one in others if one.cluster_uid == ref.cluster.uid), None)
        await self.untag(ref, "PublicIpAddress", (step.id,), owners.service_marks(ref))
        if heir is not None:
            marks = owners.service_marks(_ref(ref, heir))
            await self.tag(ref, "PublicIpAddress", (step.id,), marks)


def _ref(ref: LoadBalancerRef, owner: Owner) -> LoadBalancerRef:
    return LoadBalancerRef(ref.cluster, owner.namespace, owner.service, owner.service_uid, "")


def _of_network(step: Claim | Unclaim, ref: LoadBalancerRef) -> Command:
    """Return the command that writes the tag with a Service's claim on a network, or deletes it."""
    of = {"resourcetype": "Network", "resourceids": step.network}
    if isinstance(step, Unclaim):
        return "deleteTags", {**of, "tags[0].key": owners.claim_key(ref)}
    return "createTags", {**of, **_map({owners.claim_key(ref): owners.claim_value(ref, step.ip)})}


def _of_address(
    step: Acquire | MarkAddress | Release, ref: LoadBalancerRef, network: Network | None, api: Api
) -> Command:
    if isinstance(step, MarkAddress):
        return "createTags", _marked("PublicIpAddress", (step.id,), ref)
    if isinstance(step, Release):
        return "disassociateIpAddress", {"id": step.id}
    if network is None:
        raise TypeError("no address is acquired without a network")
    of = {"vpcid": network.vpc} if network.vpc else {"networkid": network.id}
    named = {"ipaddress": step.ip} if step.ip else {}
    return "associateIpAddress", api.in_project({**of, **named})


def _of_rule(step: MakeRule | ChangeRule | DropRule | MarkRules, ref: LoadBalancerRef) -> Command:
    match step:
        case MakeRule(desired):
            return "createLoadBalancerRule", _rule(desired, ref)
        case ChangeRule(id_, fields):
            return "updateLoadBalancerRule", {"id": id_, **fields}
        case DropRule(id_):
            return "deleteLoadBalancerRule", {"id": id_}
    return "createTags", _marked("LoadBalancer", step.ids, ref)


def _of_machines(step: Assign | Unassign) -> Command:
    parameters = {"id": step.rule, "virtualmachineids": ",".join(step.machines)}
    if isinstance(step, Assign):
        return "assignToLoadBalancerRule", parameters
    return "removeFromLoadBalancerRule", parameters


def _of_policy(step: Stick | Unstick, ref: LoadBalancerRef) -> Command:
    if isinstance(step, Unstick):
        return "deleteLBStickinessPolicy", {"id": step.id}
    return "createLBStickinessPolicy", {
        "lbruleid": step.rule,
        "name": ref.name,
        "description": owners.description(ref),
        "methodname": documents.BY_SOURCE,
        "param[0].name": documents.EXPIRE,
        "param[0].value": f"{step.seconds}s",
    }


def _of_opening(step: Open | Close, ref: LoadBalancerRef, address: Address | None) -> Command:
    if isinstance(step, Close):
        return ("deleteNetworkACL" if step.in_acl else "deleteFirewallRule"), {"id": step.id}
    transport, port = step.key
    opened = {"protocol": transport, "startport": str(port), "endport": str(port)}
    opened["cidrlist"] = sources(step.cidrs)
    if step.acl:
        allowed = {"aclid": step.acl, "action": "Allow", "traffictype": "Ingress"}
        return "createNetworkACL", {**opened, **allowed, "reason": owners.description(ref)}
    return "createFirewallRule", {**opened, "ipaddressid": address.id if address else ""}


def command_for(
    step: Step, ref: LoadBalancerRef, network: Network | None, address: Address | None, api: Api
) -> Command:
    """Return the command that carries out a step, and its parameters.

    Args:
        step: The step to take.
        ref: The Service.
        network: The network of the Service's hosts, where an address may be acquired.
        address: The Service's address, whose firewall is opened.
        api: The client, which adds the project.
    """
    match step:
        case Claim() | Unclaim():
            return _of_network(step, ref)
        case Acquire() | MarkAddress() | Release():
            return _of_address(step, ref, network, api)
        case MakeRule() | ChangeRule() | DropRule() | MarkRules():
            return _of_rule(step, ref)
        case Assign() | Unassign():
            return _of_machines(step)
        case Stick() | Unstick():
            return _of_policy(step, ref)
        case Open() | Close():
            return _of_opening(step, ref, address)
    raise TypeError(f"no command of CloudStack takes the step {step}")


def _marked(kind: str, ids: Iterable[str], ref: LoadBalancerRef) -> Parameters:
    of = {"resourcetype": kind, "resourceids": ",".join(ids)}
    return {**of, **_map(owners.service_marks(ref))}


def _map(tags: Mapping[str, str]) -> Parameters:
    found: Parameters = {}
    for number, (key, value) in enumerate(sorted(tags.items())):
        found |= {f"tags[{number}].key": key, f"tags[{number}].value": value}
    return found


def _rule(desired: Rule, ref: LoadBalancerRef) -> Parameters:
    return {
        "algorithm": desired.algorithm,
        "cidrlist": sources(desired.cidrs),
        "description": owners.description(ref),
        "name": desired.name,
        "networkid": desired.network,
        "openfirewall": "false",
        "privateport": str(desired.node_port),
        "protocol": desired.protocol,
        "publicipid": desired.address,
        "publicport": str(desired.port),
    }
