"""Choose the load balancer that each Service is placed on. Pure.

With several standard load balancers a Service stays where it is for as long as it may be there.
Else it comes to the one with the fewest rules, of those that its annotation and their selectors
allow:
https://cloud-provider-azure.sigs.k8s.io/topics/multislb/
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.selectors import selects_namespace
from proreus.providers.azure.balancing.annotations import PREFIX, Options
from proreus.providers.azure.balancing.desired import Place, base_of
from proreus.providers.azure.balancing.documents import named_id, named_ids
from proreus.providers.azure.balancing.parts import Job, Scene, State
from proreus.providers.azure.machines import Resource, part, properties
from proreus.providers.azure.multiple import Configuration

_ANNOTATION = f"{PREFIX}azure-load-balancer-configurations"
_FRONTENDS = "frontendIPConfigurations"
_RULES = "loadBalancingRules"
_USERS = (_RULES, "outboundRules", "inboundNatRules", "inboundNatPools")


def placed(jobs: Sequence[Job], state: State, scene: Scene) -> list[Job]:
    """Return the Services of a pass, each with the name of its load balancer.

    Args:
        jobs: The Services; those to be deleted get no load balancer.
        state: The observed state.
        scene: The facts that do not change within the pass.

    Raises:
        InvalidRequest: No load balancer can take a Service.
    """
    if not scene.place.config.multiple_standard_load_balancer_configurations:
        (name,) = scene.place.configurations
        return [job if job.lb is None else _on(job, name) for job in jobs]
    finding = _Finding(state, scene.place)
    return [job if job.lb is None else finding.placed(job) for job in jobs]


def leaving(jobs: Sequence[Job], state: State, scene: Scene) -> list[Job]:
    """Return the jobs; one whose Service must leave another load balancer first names none.

    The reason is that Azure takes a public address into one load balancer at a time.
    """
    there, kinds = _places(state), scene.place.balancers
    return [
        msgspec.structs.replace(job, balancer="")
        if job.balancer
        and any(
            name != job.balancer and kinds.get(name) is job.options.internal
            for name in there.get(job.ref.name, ())
        )
        else job
        for job in jobs
    ]


class _Finding:
    """What is known of where Services are; it grows as those of a pass are placed."""

    def __init__(self, state: State, place: Place) -> None:
        self._state = state
        self._place = place
        self._there = _places(state)
        self._rules = {
            name: len(part(one, _RULES) or ())
            for name, one in state.balancers.items()
            if one is not None
        }
        self._pinned: dict[str, str] = {}

    def placed(self, job: Job) -> Job:
        """Return a Service with its load balancer.

        Raises:
            InvalidRequest: No load balancer can take the Service.
        """
        assert job.lb is not None  # noqa: S101 - for the types
        several = self._place.config.multiple_standard_load_balancer_configurations
        internal, base = job.options.internal, job.ref.name
        current = self._current(base, internal=internal)
        allowed = eligible(several, job, current)
        key = self._address(job.options)
        pinned = self._pinned.get(key) or self._at_address(key, internal=internal) if key else ""
        if pinned and pinned not in allowed:
            raise InvalidRequest(
                f"the address that is asked for is on the load balancer {pinned}, where the Service"
                f" cannot be: correct the annotation {_ANNOTATION}, or leave out the address"
            )
        name = pinned or (current if current in allowed else self._least(allowed, job))
        if current and name != current:
            self._check_free(base, self._place.balancer_name(current, internal=internal))
        if key:
            self._pinned[key] = name
        found = _on(job, name)
        if name != current:
            added = self._rules.get(found.balancer, 0) + len(job.lb.frontends)
            self._rules[found.balancer] = added
        return found

    def _current(self, base: str, *, internal: bool) -> str:
        """Return the configuration where a Service is; load balancers of its kind go first."""
        names = self._there.get(base, ())
        kinds = self._place.balancers
        ordered = sorted(names, key=lambda name: kinds.get(name) is not internal)
        return next((_configuration(self._place, name) for name in ordered), "")

    def _least(self, allowed: Sequence[str], job: Job) -> str:
        """Return the configuration with the fewest rules; of equals one with a load balancer."""

        def weight(name: str) -> tuple[int, bool]:
            balancer = self._place.balancer_name(name, internal=job.options.internal)
            return self._rules.get(balancer, 0), balancer not in self._rules

        return min(allowed, key=weight)

    def _address(self, options: Options) -> str:
        """Return the address that a Service names, or the id of the public one; "" for none."""
        group = self._place.address_group(options)
        for name in options.names.values():
            return self._place.network_id(group, "publicIPAddresses", name).lower()
        for asked in options.addresses.values():
            if options.internal:
                return asked
            for id_, one in self._state.addresses.items():
                if part(one, "ipAddress") == asked:
                    return id_
        return ""

    def _at_address(self, key: str, *, internal: bool) -> str:
        """Return the configuration on whose load balancer of a kind an address is."""
        for name, one in self._state.balancers.items():
            if self._place.balancers.get(name) is internal:
                for frontend in part(one or {}, _FRONTENDS) or ():
                    private = properties(frontend).get("privateIPAddress")
                    if key in {named_id(frontend, "publicIPAddress"), private}:
                        return _configuration(self._place, name)
        return ""

    def _check_free(self, base: str, balancer: str) -> None:
        """Refuse to move a Service whose frontend others use, since their address would go.

        Raises:
            InvalidRequest: Other Services use its frontend.
        """
        observed = self._state.balancers.get(balancer)
        own = {
            str(one.get("id", "")).lower()
            for one in part(observed or {}, _FRONTENDS) or ()
            if base_of(str(one["name"])) == base
        }
        for user, frontend in frontend_users(observed):
            if frontend in own and base_of(user) != base:
                raise InvalidRequest(
                    f"the Service cannot leave the load balancer {balancer}, since {user} uses its"
                    f" address, too: let it stay there by {_ANNOTATION} or the selectors in the"
                    " cloud-config"
                )


def eligible(several: Sequence[Configuration], job: Job, current: str) -> list[str]:
    """Return the configurations on whose load balancers a Service may be, in their order.

    Args:
        several: The configurations of load balancers in the cloud-config.
        job: The Service, what its annotations ask for, and the labels of its namespace.
        current: The configuration of the Service's present load balancer; "" for none.

    Raises:
        InvalidRequest: No configuration allows the Service.
    """
    asked = {name.lower() for name in job.options.configurations}
    named = [one for one in several if not asked or one.name.lower() in asked]
    open_ = [one for one in named if one.allow_service_placement or one.name == current]
    chosen = [one for one in open_ if _selects(one, job)]
    by_selector = [one for one in chosen if _has_selector(one)]
    if not chosen:
        known = ", ".join(one.name for one in several)
        raise InvalidRequest(
            f"no load balancer of the cloud-config takes the Service: {known}: name one of them in"
            f" the annotation {_ANNOTATION}, let it take Services (allowServicePlacement), or"
            " correct its selectors"
        )
    return [one.name for one in by_selector or chosen]


def _has_selector(one: Configuration) -> bool:
    return not (one.service_label_selector is None and one.service_namespace_selector is None)


def _selects(one: Configuration, job: Job) -> bool:
    given = {} if job.lb is None else job.lb.service.metadata.labels
    labels, spaces = one.service_label_selector, one.service_namespace_selector
    return (labels is None or labels.matches(given)) and (
        spaces is None or selects_namespace(spaces, job.ref.namespace, job.space)
    )


def _on(job: Job, configuration: str) -> Job:
    name = Place.balancer_name(configuration, internal=job.options.internal)
    return msgspec.structs.replace(job, balancer=name)


def _configuration(place: Place, balancer: str) -> str:
    return next(
        one
        for one in place.configurations
        if balancer in {place.balancer_name(one, internal=kind) for kind in (False, True)}
    )


def _places(state: State) -> Mapping[str, Collection[str]]:
    """Return the names of the load balancers that have parts of a Service, by its parts' base."""
    found: dict[str, list[str]] = {}
    for name, one in state.balancers.items():
        parts = (*(part(one or {}, _RULES) or ()), *(part(one or {}, _FRONTENDS) or ()))
        for base in {base_of(str(each["name"])) for each in parts}:
            found.setdefault(base, []).append(name)
    return found


def frontend_users(observed: Resource | None) -> Iterator[tuple[str, str]]:
    """Return the names of the objects that use frontends, with the frontends' ids."""
    for field in _USERS:
        for one in part(observed or {}, field) or ():
            for frontend in (named_id(one, "frontendIPConfiguration"), *named_ids(one, _FRONTENDS)):
                if frontend:
                    yield str(one["name"]), frontend
