"""Find the forwarding rule of a Service's load balancer, and tell whose load balancer it is."""

from collections.abc import Sequence

import msgspec

from proreus.cloudprovider.errors import CloudError, ImplementedElsewhere
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.mark_forms import LABELS, owned_object, owner_of
from proreus.cloudprovider.ownership import are_marks_of, verdict
from proreus.kube.objects import vip_addresses
from proreus.providers.gce.api import Api
from proreus.providers.gce.balancing.annotations import Options, handled_elsewhere
from proreus.providers.gce.balancing.observe import Observer
from proreus.providers.gce.balancing.parts import (
    INTERNAL,
    SUBSET_PREFIX,
    Form,
    Kind,
    Rule,
)
from proreus.providers.gce.balancing.subsets.names import described, names_of
from proreus.providers.gce.config import ILB_SUBSETS, GCEConfig
from proreus.providers.gce.names import last_part


class Finder:
    """A finder of forwarding rules."""

    def __init__(
        self, api: Api, observer: Observer, config: GCEConfig, *, rbs_default: bool
    ) -> None:
        """Keep how to read parts, and what the cloud-config leaves to other controllers."""
        self._api = api
        self._observer = observer
        self._settings = config.load_balancer
        self._leaves_subsets = (
            ILB_SUBSETS in config.global_.alpha_features and not config.load_balancer.subsetting
        )
        self._rbs_default = rbs_default

    async def first(self, lb: LoadBalancer, options: Options) -> Rule | None:
        """Return the first forwarding rule of a Service as it is; None without one.

        Raises:
            ImplementedElsewhere: Another controller makes the load balancer.
            CloudError: The rule is somebody else's.
        """
        rule: Rule | None = await self._observer.find(Kind.RULE, lb.ref.name)
        makes = self._settings.backend_services
        why = handled_elsewhere(
            lb.service,
            options,
            has_rule=rule is not None,
            subsets=self._leaves_subsets,
            rbs_default=self._rbs_default,
            backend_services=makes,
            subsetting=self._settings.subsetting,
        )
        if rule is not None and rule.form is Form.EXTERNAL and (rule.is_elsewhere or not makes):
            why = "its forwarding rule leads to a backend service, which another controller makes"
        if why:
            error, is_lost = ImplementedElsewhere(why), await attempt(self._is_given_away, lb.ref)
            raise error.disowning() if is_lost is True else error
        if rule is None and (self._settings.subsetting or lb.ref.last_ingress):
            rule = await self._of_subset(lb.ref)
        if rule is not None and not is_ours(rule, lb.ref):
            raise CloudError(
                f"the forwarding rule {rule.name} has labels of another owner: delete it, or"
                " correct its labels"
            )
        return rule

    async def _of_subset(self, ref: LoadBalancerRef) -> Rule | None:
        """Return the forwarding rule of a subset, which is called after its protocol."""
        names = names_of(ref).rules.values()
        rules = (await self._observer.parts((Kind.RULE, one) for one in names)).rules()
        if not self._settings.subsetting:
            # Without the setting only what was made here before is ours to look after.
            rules = [one for one in rules if is_marked(one, ref)]
        return rules[0] if rules else None

    async def _is_given_away(self, ref: LoadBalancerRef) -> bool:
        """Tell whether others alone have a reserved address outside that a Service shows.

        Whoever makes the Service's load balancer gives it names of these forms.
        """
        own = ref.name, SUBSET_PREFIX
        for ip in vip_addresses(ref.last_ingress):
            for one in await self._observer.reserved_at(ip):
                users = [last_part(of) for of in one.users]
                is_outside = one.address_type != INTERNAL
                if is_outside and users and not any(of.startswith(own) for of in users):
                    return True
        return False

    async def owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List the forwarding rules with the cluster's label.

        Raises:
            CloudError: Google gives no usable answer.
        """
        (key, value), *_ = LABELS.write({MARK_CLUSTER_UID: cluster.uid}).items()
        path, query = self._observer.path(Kind.RULE), {"filter": f"labels.{key}={value}"}
        found = await self._api.listed("forwardingRules.list", path, Rule, query)
        return [
            msgspec.structs.replace(
                owned_object("forwarding rule", one.name, one.marks), addresses=_shown(one)
            )
            for one in found
            if one.marks.get(MARK_CLUSTER_UID) == cluster.uid
        ]


def _shown(rule: Rule) -> tuple[str, ...]:
    """Return all addresses of a load balancer by its first rule; none if there may be others."""
    return (rule.ip,) if rule.form is Form.POOL else ()


def is_marked(rule: Rule, ref: LoadBalancerRef) -> bool:
    """Tell whether our labels on a forwarding rule say that it is the Service's. Pure."""
    return are_marks_of(rule.marks, ref)


def is_ours(rule: Rule, ref: LoadBalancerRef) -> bool:
    """Tell whether a forwarding rule of the Service's name is the Service's. Pure.

    That of a subset has no uid in its name: without our labels, which come a moment after it, its
    name, which holds the cluster and the Service, and its description tell. Who else gives such
    names puts its finalizer on the Service first, and then nothing is done here.
    """
    owners = tuple(filter(None, (owner_of(rule.marks),)))
    if rule.form is Form.SUBSET and not owners:
        is_named = rule.name in names_of(ref).rules.values()
        return is_named and rule.description.startswith(described(ref.key)[:-1])
    return verdict(ref, owners=owners, texts=(rule.name,)).is_ours
