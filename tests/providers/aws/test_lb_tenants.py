"""Security groups and Elastic addresses of others, which a Service's annotations name."""

import contextlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import (
    CloudError,
    Done,
    Ensured,
    InvalidRequest,
    LoadBalancer,
    Pending,
)
from proreus.cloudprovider.desired import load_balancer_ref
from proreus.cloudprovider.identity import ClusterIdentity, marks
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.ownership import Owner
from proreus.kube.objects import ServicePort
from proreus.providers.aws.annotations import PREFIX
from proreus.providers.aws.classic.plan import group_name as classic_name
from proreus.providers.aws.identity import ClusterTags
from proreus.providers.aws.network.plan import group_name as network_name
from proreus.providers.aws.tenants import owners_of
from proreus.testing import objects

from ..surroundings import Clock, Objects  # noqa: TID252 - pytest imports tests by path
from .lb_site import NAME, LBSite, placed
from .site import CLUSTER, config_text, context, node_of, started
from .strict.process import StrictAWS

OURS = marks(CLUSTER, "shop/api", "uid-api")
THEIRS = marks(CLUSTER, "bank/web", "uid-b")
CLUSTER_ID = "test"
HERE, ELSEWHERE = f"kubernetes.io/cluster/{CLUSTER_ID}", "kubernetes.io/cluster/elsewhere"
SERVICE = "kubernetes.io/service-name"
UID = CLUSTER.uid

MARKS: Mapping[str, tuple[dict[str, str], str, tuple[Owner, ...]]] = {
    "nothing": ({}, "", ()),
    "an operator's": ({"team": "storage"}, "given", ()),
    "ours": (dict(THEIRS), "", (Owner(UID, CLUSTER.name, "bank", "web", "uid-b"),)),
    "the cluster's": ({HERE: "owned"}, "", ()),
    "shared with others": ({ELSEWHERE: "shared"}, "", ()),
    "shared with this one": ({ELSEWHERE: "owned", HERE: "shared"}, "", ()),
    "another cluster's": ({ELSEWHERE: "owned"}, "", (Owner("elsewhere"),)),
    "another cluster's, with a tag of its id": (
        {ELSEWHERE: "owned", "elsewhere": "true"}, "", (Owner("elsewhere"),)
    ),
    "another cluster's, of old": ({"KubernetesCluster": "elsewhere"}, "", (Owner("elsewhere"),)),
    "an official Service's": ({HERE: "owned", SERVICE: "bank/web"}, "",
                              (Owner(namespace="bank", service="web"),)),
    "an official group's": ({HERE: "owned"}, "Security group for Kubernetes ELB abc (bank/web)",
                            (Owner(namespace="bank", service="web"),)),
    "an official group's elsewhere": (
        {ELSEWHERE: "owned"}, "Security group for Kubernetes ELB abc (bank/web)",
        (Owner("elsewhere", "", "bank", "web"),),
    ),
    "another controller's": (
        {"elbv2.k8s.aws/cluster": CLUSTER_ID, "service.k8s.aws/stack": "bank/web"}, "",
        (Owner(namespace="bank", service="web"),),
    ),
    "an Ingress'": ({"ingress.k8s.aws/stack": "bank/web"}, "",
                    (Owner(namespace="bank", service="web"),)),
    "a Gateway's": ({"gateway.k8s.aws.alb/stack": "bank/web"}, "",
                    (Owner(namespace="bank", service="web"),)),
    "a group of Ingresses'": ({"ingress.k8s.aws/stack": "shop"}, "",
                              (Owner(namespace="(group of Ingresses)", service="shop"),)),
    "EKS Auto Mode's elsewhere": (
        {"eks:eks-cluster-name": "elsewhere", "service.eks.amazonaws.com/stack": "bank/web"}, "",
        (Owner("elsewhere", "", "bank", "web"),),
    ),
    "another controller's, of the whole cluster": (
        {"elbv2.k8s.aws/cluster": CLUSTER_ID, "elbv2.k8s.aws/resource": "backend-sg"}, "", ()
    ),
    "another controller's, shared with this one": (
        {"elbv2.k8s.aws/cluster": "elsewhere", HERE: "shared"}, "", ()
    ),
}  # fmt: skip


KINDS = ("", pytest.param("nlb", marks=pytest.mark.long))


@pytest.mark.parametrize("name", MARKS)
def test_marks_name_the_owner(name: str) -> None:
    tags, description, expected = MARKS[name]
    described = {
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        "Description": description,
    }
    assert owners_of(described, ClusterTags(CLUSTER_ID)) == expected


def test_without_an_id_of_the_cluster_only_marks_of_services_count() -> None:
    described = {"Tags": [{"Key": ELSEWHERE, "Value": "owned"}]}
    assert owners_of(described, ClusterTags("")) == ()


def pairs(tags: Mapping[str, str], kind: str) -> list[Any]:
    given = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": given}] if given else []


def group(site: LBSite, tags: Mapping[str, str], name: str = "given") -> str:
    made = site.ec2.create_security_group(
        GroupName=name, Description="given", VpcId=site.network.vpc,
        TagSpecifications=pairs(tags, "security-group"),
    )  # fmt: skip
    return str(made["GroupId"])


def addresses(site: LBSite, tags: Mapping[str, str]) -> str:
    ids = [
        site.ec2.allocate_address(Domain="vpc", TagSpecifications=pairs(tags, "elastic-ip"))
        for _ in range(3)
    ]
    return ",".join(one["AllocationId"] for one in ids)


USES = {
    "security-groups of a classic one": ("classic", "security-groups"),
    "extra-security-groups": ("classic", "extra-security-groups"),
    "security-groups of a network one": ("nlb", "security-groups"),
    "eip-allocations": ("nlb", "eip-allocations"),
}


@pytest.mark.parametrize("use", USES)
async def test_what_is_anothers_is_refused_by_name_and_nothing_is_made(
    aws: StrictAWS, use: str
) -> None:
    kind, annotation = USES[use]
    async with placed(aws, kind="" if kind == "classic" else kind) as site:
        ids = site.machines(1)
        make = addresses if annotation == "eip-allocations" else group
        named = make(site, THEIRS)
        site.writes()
        answer = await site.ensure(site.desired(ids, asked={annotation: named}))
        assert isinstance(answer, InvalidRequest)
        assert f"{annotation}: {named[:4]}" in str(answer)
        assert "it belongs to the Service bank/web of the cluster" in str(answer)
        assert site.writes() == []


@pytest.mark.parametrize("kind", ["", "nlb"])
async def test_a_group_that_the_official_manager_made_is_of_its_service(
    aws: StrictAWS, kind: str
) -> None:
    """It marks only the cluster on that of a network load balancer, until that is ensured here."""
    site, known = LBSite(aws, kind), Objects()
    ids = site.machines(1)
    config = config_text(aws, site.network.vpc, "NLBSecurityGroupMode = Managed")
    async with started(config, context(services=known)) as provider:
        site.provider = provider
        theirs = objects.service("web", namespace="bank", uid=OTHER_UID, annotations={})
        known.by_key = {"bank/web": theirs}
        ref = load_balancer_ref(theirs, CLUSTER)
        named = group(site, {HERE: "owned"}, network_name(ref) if kind else classic_name(ref.name))
        answer = await site.ensure(site.desired(ids, asked={"security-groups": named}))
        assert isinstance(answer, InvalidRequest), answer
        assert f"{named}: it belongs to the Service bank/web" in str(answer)
        known.by_key = {}
        desired = site.desired(ids, asked={"security-groups": named})
        assert isinstance(await site.made(desired), Ensured), "nobody's"


@pytest.mark.parametrize("prefix", ["service.k8s.aws", "gateway.k8s.aws.nlb"])
@pytest.mark.parametrize("namespace", ["bank", "shop"])
async def test_a_group_that_another_controller_made_is_of_its_service(
    aws: StrictAWS, namespace: str, prefix: str
) -> None:
    tags = {"elbv2.k8s.aws/cluster": CLUSTER_ID, f"{prefix}/stack": f"{namespace}/web"}
    async with placed(aws, kind="") as site:
        ids, named = site.machines(1), group(site, tags)
        site.writes()
        answer = await site.ensure(site.desired(ids, asked={"security-groups": named}))
        if namespace == "shop":
            assert isinstance(answer, Ensured)
            return
        assert isinstance(answer, InvalidRequest)
        assert f"{named}: it belongs to the Service bank/web" in str(answer)
        assert site.writes() == []


@pytest.mark.parametrize("use", USES)
async def test_what_is_a_neighbours_is_used_and_outlives_the_service(
    aws: StrictAWS, use: str
) -> None:
    kind, annotation = USES[use]
    async with placed(aws, kind="" if kind == "classic" else kind) as site:
        make = addresses if annotation == "eip-allocations" else group
        named = make(site, OURS)
        desired = site.desired(site.machines(1), asked={annotation: named})
        assert isinstance(await site.made(desired), Ensured)
        await site.deleted(desired)
        if annotation == "eip-allocations":
            left = site.ec2.describe_addresses()["Addresses"]
            assert {one["AllocationId"] for one in left} == set(named.split(","))
        else:
            assert site.ec2.describe_security_groups(GroupIds=[named])["SecurityGroups"]


async def test_what_the_load_balancer_has_already_is_not_asked_about(aws: StrictAWS) -> None:
    async with placed(aws, kind="") as site:
        first, second = site.machines(2)
        named = group(site, {})
        asked = {"security-groups": named}
        await site.made(site.desired([first], asked=asked))
        site.ec2.create_tags(
            Resources=[named], Tags=[{"Key": key, "Value": one} for key, one in THEIRS.items()]
        )
        assert isinstance(await site.made(site.desired([first, second], asked=asked)), Ensured)
        more = {"security-groups": f"{named},{group(site, THEIRS, 'another')}"}
        answer = await site.ensure(site.desired([first], asked=more))
        assert isinstance(answer, InvalidRequest)


async def test_the_cloud_config_may_list_what_is_allowed(aws: StrictAWS) -> None:
    site = LBSite(aws, kind="")
    ids = site.machines(1)
    given, theirs = group(site, {}), group(site, THEIRS, "theirs")
    strict = f"\n[Tenants]\nNamedObjects = listed\nAllow = shop={theirs}\n"
    async with placed(aws, strict, kind="") as other:
        site.provider = other.provider
        refused = await site.ensure(site.desired(ids, asked={"security-groups": given}))
        assert isinstance(refused, InvalidRequest)
        assert "[Tenants]" in str(refused)
        assert isinstance(
            await site.made(site.desired(ids, asked={"security-groups": theirs})), Ensured
        )


CERTIFICATE = "arn:aws:iam::123456789012:server-certificate/one"
LISTED = "\n[Tenants]\nNamedObjects = listed\n"
OTHER_UID = "6e000000-0000-4000-8000-000000000001"


def subnet(site: LBSite, number: int, tags: Mapping[str, str]) -> str:
    made = site.ec2.create_subnet(
        VpcId=site.network.vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone="us-east-1a",
        TagSpecifications=pairs(tags, "subnet"),
    )  # fmt: skip
    return str(made["Subnet"]["SubnetId"])


def of_bank(desired: LoadBalancer) -> LoadBalancer:
    """The same of a Service in another namespace."""
    ref = msgspec.structs.replace(desired.ref, namespace="bank", uid=OTHER_UID)
    metadata = msgspec.structs.replace(desired.service.metadata, namespace="bank")
    service = msgspec.structs.replace(desired.service, metadata=metadata)
    own = marks(CLUSTER, ref.key, ref.uid)
    return msgspec.structs.replace(desired, ref=ref, service=service, marks=own)


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("annotation", ["eip-allocations", "private-ipv4-addresses"])
async def test_addresses_of_another_namespace_are_refused_while_nothing_has_them(
    aws: StrictAWS, annotation: str, *, is_listed: bool
) -> None:
    """Who deletes a load balancer by hand frees its addresses, and it is made anew with them."""
    site, known = LBSite(aws), Objects()
    ids = site.machines(1)
    is_internal = annotation == "private-ipv4-addresses"
    named = "10.0.0.77,10.0.1.77,10.0.2.77" if is_internal else addresses(site, {})
    asked = {annotation: named, "internal": "true"} if is_internal else {annotation: named}
    allowed = "".join(f"Allow = bank={one}\n" for one in named.split(","))
    sections = f"\n[Tenants]\n{allowed}" if is_listed else ""
    config = config_text(aws, site.network.vpc, sections)
    async with started(config, context(services=known)) as provider:
        site.provider = provider
        own = await site.made(site.desired(ids, asked=asked))
        mine = site.desired(ids, asked=asked, shown=own.ingress[0].hostname)
        theirs = of_bank(site.desired(ids, asked=asked, uid=OTHER_UID))
        # Whoever only names them later, with another load balancer, holds nobody up.
        classic = f"{default_load_balancer_name(OTHER_UID)}-1.us-east-1.elb.amazonaws.com"
        later = of_bank(site.desired(ids, asked=asked, uid=OTHER_UID, shown=classic))
        known.by_key = {"shop/web": mine.service, "bank/web": later.service}
        found = site.described()
        assert found is not None
        site.elb.delete_load_balancer(LoadBalancerArn=found["LoadBalancerArn"])
        answer = await site.ensure(theirs)
        if is_listed:
            assert isinstance(answer, Ensured | Pending)
            return
        assert isinstance(answer, InvalidRequest)
        assert f"{annotation}: {named.split(',')[0]}: it belongs to the Service shop/" in str(
            answer
        )
        assert isinstance(await site.made(mine), Ensured)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        (f"{NAME}-1.elb.cn-north-1.amazonaws.com.cn", "nlb"),
        (f"{NAME}-1.elb.eusc-de-east-1.amazonaws.eu", "nlb"),
        (f"{NAME}-1.elb.us-iso-east-1.c2s.ic.gov", "nlb"),
        ("k8s-shop-web-0a1b2c3d4e-1.elb.us-east-1.amazonaws.com", "external"),
    ],
)
async def test_addresses_are_another_namespaces_in_every_partition_whoever_made_its_load_balancer(
    aws: StrictAWS, host: str, kind: str
) -> None:
    """The AWS Load Balancer Controller, which serves the type `external`, reads the same."""
    site, known = LBSite(aws), Objects()
    ids = site.machines(1)
    asked = {"eip-allocations": addresses(site, {})}
    async with started(config_text(aws, site.network.vpc), context(services=known)) as provider:
        site.provider = provider
        mine = site.desired(ids, asked=asked, shown=host).service
        annotations = {**mine.metadata.annotations, f"{PREFIX}type": kind}
        metadata = msgspec.structs.replace(mine.metadata, annotations=annotations)
        known.by_key = {"shop/web": msgspec.structs.replace(mine, metadata=metadata)}
        answer = await site.ensure(of_bank(site.desired(ids, asked=asked, uid=OTHER_UID)))
    assert isinstance(answer, InvalidRequest)
    assert "it belongs to the Service shop/" in str(answer)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_has_no_marks_must_be_listed_where_the_cloud_config_says_so(
    aws: StrictAWS, kind: str
) -> None:
    site = LBSite(aws, kind)
    ids = site.machines(1)
    aside = subnet(site, 90, {"Name": "aside"})
    asked = {
        "subnets": "aside",
        "ssl-cert": CERTIFICATE,
        "access-log-enabled": "true",
        "access-log-s3-bucket-name": "logs",
    }
    other = ServicePort(81, "web", node_port=30081)
    one: dict[str, Any] = {"ports": [other], "asked": asked, "uid": OTHER_UID}
    async with started(config_text(aws, site.network.vpc)) as provider:
        site.provider = provider
        await site.made(site.desired(ids, asked=asked))
    async with started(config_text(aws, site.network.vpc, LISTED)) as provider:
        site.provider = provider
        assert isinstance(await site.made(site.desired(ids, asked=asked)), Ensured), "as it was"
        site.aws.calls()
        answer = await site.ensure(site.desired(ids, **one))
        assert isinstance(answer, InvalidRequest)
        for name in (f"subnets: {aside}", f"ssl-cert: {CERTIFICATE}", "bucket-name: logs"):
            assert f"{name}: the cloud-config does not list it" in str(answer)
        assert site.writes() == []
    every = "".join(f"Allow = shop={name}\n" for name in ("aside", CERTIFICATE, "logs"))
    async with started(config_text(aws, site.network.vpc, LISTED + every)) as provider:
        site.provider = provider
        assert isinstance(await site.made(site.desired(ids, **one)), Ensured)


@pytest.mark.parametrize(
    "tags", [{HERE: "shared"}, {"kubernetes.io/role/elb": "1"}], ids=["the cluster's", "for all"]
)
async def test_subnets_that_services_get_unasked_need_not_be_listed(
    aws: StrictAWS, tags: Mapping[str, str]
) -> None:
    site = LBSite(aws)
    ids = site.machines(1)
    named: dict[str, Any] = {"asked": {"subnets": subnet(site, 90, tags)}}
    async with started(config_text(aws, site.network.vpc, LISTED)) as provider:
        site.provider = provider
        assert isinstance(await site.made(site.desired(ids, **named)), Ensured)


@pytest.mark.parametrize("rule", ["", LISTED.replace("listed", "same-namespace")])
@pytest.mark.parametrize(("marks_", "is_ours"), [(OURS, True), (THEIRS, False)])
@pytest.mark.parametrize("tags", [{}, {HERE: "shared"}], ids=["", "the cluster's"])
async def test_a_subnet_that_is_marked_is_of_that_namespace(
    aws: StrictAWS,
    rule: str,
    marks_: Mapping[str, str],
    tags: Mapping[str, str],
    *,
    is_ours: bool,
) -> None:
    site = LBSite(aws)
    ids = site.machines(1)
    named: dict[str, Any] = {"asked": {"subnets": subnet(site, 90, {**marks_, **tags})}}
    async with started(config_text(aws, site.network.vpc, rule)) as provider:
        site.provider = provider
        if is_ours:
            assert isinstance(await site.made(site.desired(ids, **named)), Ensured)
            return
        answer = await site.ensure(site.desired(ids, **named))
        assert isinstance(answer, InvalidRequest)
        assert "it belongs to the Service bank/web" in str(answer)


async def test_a_subnet_that_was_marked_since_is_refused_though_a_clock_is_set_back(
    aws: StrictAWS,
) -> None:
    site, clock = LBSite(aws), Clock()
    ids, aside = site.machines(1), subnet(site, 90, {})
    named: dict[str, Any] = {"asked": {"subnets": aside}}
    config = config_text(aws, site.network.vpc)
    async with started(config, context(clock=clock)) as provider:
        site.provider = provider
        await site.made(site.desired(ids))
        site.ec2.create_tags(Resources=[aside], Tags=pairs(THEIRS, "")[0]["Tags"])
        clock.wrong -= timedelta(hours=1)
        clock.ahead += timedelta(minutes=2)
        other = ServicePort(81, "web", node_port=30081)
        answer = await site.ensure(site.desired(ids, other, uid=OTHER_UID, **named))
        assert isinstance(answer, InvalidRequest), answer
        assert "it belongs to the Service bank/web" in str(answer)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_load_balancer_gets_no_subnet_of_another_cluster_unasked(
    aws: StrictAWS, kind: str
) -> None:
    """Its subnets for load balancers have the role's tag, and the cluster's own need not."""
    site = LBSite(aws, kind)
    ids = site.machines(1)
    theirs = subnet(site, 90, {ELSEWHERE: "owned", "kubernetes.io/role/elb": "1"})
    async with started(config_text(aws, site.network.vpc)) as provider:
        site.provider = provider
        await site.made(site.desired(ids))
        assert subnets_in(site) == set(site.network.subnets)
    async with started(config_text(aws, site.network.vpc, LISTED)) as provider:
        site.provider = provider
        named: dict[str, Any] = {"asked": {"subnets": theirs}, "uid": OTHER_UID}
        other = ServicePort(81, "web", node_port=30081)
        answer = await site.ensure(site.desired(ids, other, **named))
        assert isinstance(answer, InvalidRequest)
        assert f"subnets: {theirs}: the cloud-config does not list it" in str(answer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tag", [HERE, "kubernetes.io/role/elb"])
async def test_a_load_balancer_gets_no_subnet_of_another_namespace_unasked(
    aws: StrictAWS, tag: str, kind: str
) -> None:
    site = LBSite(aws, kind)
    ids = site.machines(1)
    role = {"kubernetes.io/role/elb": "1", tag: "1"}
    theirs = subnet(site, 90, {**THEIRS, **role})
    async with started(config_text(aws, site.network.vpc)) as provider:
        site.provider = provider
        await site.made(site.desired(ids))
        assert subnets_in(site) == set(site.network.subnets)
        await site.deleted(site.desired(ids))
        await site.made(of_bank(site.desired(ids)))
        assert theirs in subnets_in(site)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_load_balancer_keeps_the_subnets_that_it_has(aws: StrictAWS, kind: str) -> None:
    site = LBSite(aws, kind)
    ids = site.machines(1)
    role = {"kubernetes.io/role/elb": "1"}
    given = subnet(site, 90, role)
    async with started(config_text(aws, site.network.vpc)) as provider:
        site.provider = provider
        desired = site.desired(ids, load_balancer_source_ranges=("198.51.100.0/24",))
        await site.made(desired)
        before = subnets_in(site)
        assert given in before
        rules = site.rules()
    site.ec2.create_tags(Resources=[given], Tags=pairs({ELSEWHERE: "owned"}, "")[0]["Tags"])
    async with started(config_text(aws, site.network.vpc)) as provider:
        site.provider = provider
        await site.made(desired)
        assert (subnets_in(site), site.rules()) == (before, rules)


def subnets_in(site: LBSite) -> set[str]:
    """The subnets of the only load balancer, of whatever kind."""
    if site.kind:
        found = site.described()
        assert found is not None
        return {zone["SubnetId"] for zone in found["AvailabilityZones"]}
    (one,) = site.aws.client("elb").describe_load_balancers()["LoadBalancerDescriptions"]
    return set(one["Subnets"])


@pytest.mark.parametrize("kind", ["", "nlb"])
async def test_no_rule_is_put_in_the_group_of_another_cluster(aws: StrictAWS, kind: str) -> None:
    async with placed(aws, kind=kind) as site:
        (host,) = site.machines(1)
        theirs = group(site, {ELSEWHERE: "owned"})
        site.ec2.modify_instance_attribute(InstanceId=host, Groups=[theirs])
        desired = site.desired([host])
        answer = await site.made(desired)
        assert f"its security group {theirs} is another cluster's" in "".join(
            answer.rejected.values()
        )
        assert rules_in(site, theirs) == []
        shared = {"Key": HERE, "Value": "shared"}
        site.ec2.create_tags(Resources=[theirs], Tags=[shared])
        assert (await site.made(desired)).rejected == {}
        let_in = rules_in(site, theirs)
        assert let_in
        site.ec2.delete_tags(Resources=[theirs], Tags=[shared])
        assert (await site.made(desired)).rejected == {}, "what is let in goes on being so"
        assert rules_in(site, theirs) == let_in
        await site.deleted(desired)
        assert rules_in(site, theirs) == []


async def test_no_group_of_a_service_becomes_one_of_new_machines(aws: StrictAWS) -> None:
    """Karpenter adds its machines to all groups with this tag."""
    asked = {"additional-resource-tags": "karpenter.sh/discovery=test"}
    async with placed(aws, kind="") as site:
        uid = "5e000000-0000-4000-8000-0000000007f1"
        with contextlib.suppress(InvalidRequest):
            await site.ensure(site.desired(site.machines(2), asked=asked, uid=uid))
        found = site.ec2.describe_security_groups(
            Filters=[{"Name": "tag:karpenter.sh/discovery", "Values": ["test"]}]
        )
        of_new = [str(one["GroupId"]) for one in found["SecurityGroups"]]
        hosts = site.network.run(1, SecurityGroupIds=[site.group, *of_new])
        assert (await site.made(site.desired(hosts))).rejected == {}


def rules_in(site: LBSite, id_: str) -> list[Any]:
    (found,) = site.ec2.describe_security_groups(GroupIds=[id_])["SecurityGroups"]
    return list(found["IpPermissions"])


def in_the_copy(site: LBSite, ids: list[str]) -> LoadBalancer:
    """The desired one of the same Service in a cluster that has the same id in AWS."""
    copy = ClusterIdentity(CLUSTER.name, "c0b1e5a1-0000-4000-8000-000000000002")
    desired = site.desired(ids, uid="5e000000-0000-4000-8000-00000000c0b1")
    ref = msgspec.structs.replace(desired.ref, cluster=copy)
    return msgspec.structs.replace(desired, ref=ref, marks=marks(copy, ref.key, ref.uid))


async def test_the_target_group_of_a_cluster_with_the_same_id_is_left_alone(aws: StrictAWS) -> None:
    async with placed(aws) as site:
        first, second = site.machines(2)
        theirs = in_the_copy(site, [first])
        await site.made(theirs)
        (name,) = site.groups()
        site.aws.calls()
        ours = site.desired([second])
        answer = await site.ensure(ours)
        assert isinstance(answer, CloudError)
        assert f"target group {name} exists with tags of another owner" in str(answer)
        assert "elbv2.DeregisterTargets" not in site.writes()
        assert site.groups()[name]["ids"] == {first}
        assert await site.delete(ours) == Done()
        assert list(site.groups()) == [name]
        assert await site.delete(theirs) == Done()
        assert site.groups() == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_no_rule_is_put_in_the_group_of_a_machine_that_no_node_has(
    aws: StrictAWS, kind: str
) -> None:
    """A Node names its instance itself, so its kubelet can name that of another service."""
    site = LBSite(aws, kind)
    first, second = site.machines(2)
    theirs = group(site, {})
    (database,) = site.network.run(tags={"team": "storage"}, SecurityGroupIds=[theirs])
    text = config_text(aws, site.network.vpc)
    nodes = Objects(map(node_of, (first, second, database)))
    async with started(text, context(nodes=nodes)) as provider:
        site.provider = provider
        for hosts in ([first, database], [database]):
            answer = await site.made(site.desired(hosts))
            assert f"instance {database} has no tag of this cluster" in "".join(
                answer.rejected.values()
            )
            assert answer.rejected.keys() == {f"node-{database}"}
            assert rules_in(site, theirs) == []
        site.network.tag(database)
    for _ in range(2):
        async with started(text, context(nodes=nodes)) as provider:
            site.provider = provider
            answer = await site.made(site.desired([first, database]))
        assert answer.rejected == {}, "what is let in goes on being so"
        assert rules_in(site, theirs)
        site.ec2.delete_tags(Resources=[database], Tags=[{"Key": HERE}])


async def test_no_rule_is_put_in_such_a_group_while_ec2_leaves_out_most_instances(
    aws: StrictAWS,
) -> None:
    """By their tags the machine is known for one that no node has."""
    site = LBSite(aws)
    own, theirs = site.machines(3), group(site, {})
    (database,) = site.network.run(tags={"team": "storage"}, SecurityGroupIds=[theirs])
    gone = [f"i-{number:017x}" for number in range(3)]
    nodes = Objects(map(node_of, (*own, *gone, database)))
    aws.configure(unlisted=own)
    async with started(config_text(aws, site.network.vpc), context(nodes=nodes)) as provider:
        site.provider = provider
        answer = await site.made(site.desired([database]))
    assert answer.rejected.keys() == {f"node-{database}"}
    assert rules_in(site, theirs) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_where_instances_have_no_tags_the_only_group_of_each_gets_the_rules(
    aws: StrictAWS, kind: str
) -> None:
    site = LBSite(aws, kind)
    group_ = group(site, {})
    ids = site.network.run(3, tags={}, SecurityGroupIds=[group_])
    (tagged,) = site.machines(1)
    text = config_text(aws, site.network.vpc)
    nodes = Objects(map(node_of, (*ids, tagged)))
    async with started(text, context(nodes=nodes)) as provider:
        site.provider = provider
        assert (await site.made(site.desired(ids[:1]))).rejected == {}
        assert rules_in(site, group_)
