"""Find what is wrong with the connection to the cloud. Pure."""

from collections.abc import Iterator

from proreus.app.clouds.plan import is_about_belonging
from proreus.app.doctor.observed import Cloud, Finding, Observed
from proreus.cloudprovider.errors import (
    CloudError,
    ConfigError,
    IdentityConflict,
    ImplementedElsewhere,
    InvalidRequest,
    NotSupported,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from proreus.controllers.events import scrub

# Told of the node itself: the cloud answers, but for this machine.
_OF_ONE_NODE = (IdentityConflict, ImplementedElsewhere, InvalidRequest, NotSupported, RetryAfter)


def findings(observed: Observed) -> Iterator[Finding]:
    """Find everything wrong with the cloud that the cloud-config describes."""
    if observed.cloud is None:
        return
    for cloud in observed.cloud.members or (observed.cloud,):
        yield from _of_cloud(cloud, observed)


def _of_cloud(cloud: Cloud, observed: Observed) -> Iterator[Finding]:
    about = f"cloud/{cloud.provider}"
    if cloud.error is None and not cloud.has_cluster_id and not observed.allow_untagged:
        yield Finding(
            "no-cluster-id",
            about,
            "the manager does not start: the cloud knows no cluster id",
            "the provider has none",
            "set the cluster id in the cloud-config, or run with --allow-untagged-cloud",
        )
    reported: set[type[CloudError]] = set()
    for error in (cloud.error, *cloud.answers.values()):
        if not isinstance(error, CloudError) or isinstance(error, _OF_ONE_NODE):
            continue
        if is_about_belonging(str(error)):  # told of the node
            continue
        if type(error) not in reported:
            reported.add(type(error))
            yield _finding(about, error)


def _finding(about: str, error: CloudError) -> Finding:
    evidence = scrub(str(error))
    if isinstance(error, ConfigError):
        evidence = scrub("; ".join(error.problems))
        remedy = "correct it as the message says"
        return Finding("cloud-config", about, "the cloud-config is wrong", evidence, remedy)
    if isinstance(error, Unauthenticated):
        problem = "the cloud refuses the credentials of the cloud-config"
        remedy = "renew them, or give their account the rights that the message names"
        return Finding("cloud-credentials", about, problem, evidence, remedy)
    if isinstance(error, Throttled):
        problem = "the cloud's quota of calls is used up"
        remedy = "ask for a larger quota, or find who else uses the account"
        return Finding("cloud-throttled", about, problem, evidence, remedy)
    problem = "the cloud does not answer"
    remedy = "check that the cloud's API answers from here and from the manager: route, proxy, DNS"
    return Finding("cloud-unavailable", about, problem, evidence, remedy)
