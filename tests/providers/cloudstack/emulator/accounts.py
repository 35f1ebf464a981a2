"""Who owns the objects of the emulated CloudStack, and which of them a caller is shown.

An account of CloudStack owns objects, and so does a project, by an account of its own. As its
AccountManager decides (`buildACLSearchParameters`, `checkAccess`):

* A list without `projectid` shows nothing of projects: a user gets what the account itself owns, an
  administrator with `listall` what all accounts own.
* `projectid` with an id shows that project alone, to those who are in it, and refuses others.
* `projectid=-1` shows the objects of all the caller's projects; with `listall` the account's, too.
* What is named by its id may be the caller's, or of one of the caller's projects. All that one
  command names together has one owner.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from .refusals import Refusal, absent

if TYPE_CHECKING:
    from .world import Json, World

MAIN: Final = "main"
"""The account of the caller, which owns whatever does not say another owner."""
ALL_PROJECTS: Final = "-1"
_DOMAIN: Final = {"domain": "ROOT", "domainid": "20000000-0000-4000-8000-0000000000d0"}
_PARENTS: Final = {
    "acl_items": ("acl_lists", "aclid"),
    "acl_lists": ("vpcs", "vpcid"),
    "firewall": ("ips", "ipaddressid"),
    "policies": ("rules", "lbruleid"),
    "routes": ("vpcs", "vpcid"),
    "rules": ("ips", "publicipid"),
}
"""Kinds whose objects have the owner of another one, with its kind and the field that names it."""


def owner_of(world: "World", kind: str, one: "Json") -> str:
    """The id of the project or the name of the account that owns an object."""
    while kind in _PARENTS:
        kind, field = _PARENTS[kind]
        one = getattr(world, kind)[one[field]]
    return str(one.get("projectid") or one.get("account") or MAIN)


def fields_of(world: "World", owner: str) -> "Json":
    """What descriptions say of an owner."""
    if owner in world.projects:
        return {**_DOMAIN, "projectid": owner, "project": world.projects[owner]["name"]}
    return {**_DOMAIN, "account": owner}


def owner_named(world: "World", parameters: Mapping[str, str]) -> str:
    """The owner of what a command makes: the project that it names, or the caller's account."""
    project = parameters.get("projectid", "")
    if project:
        _enter(world, project)
    return project or MAIN


def shown_to(world: "World", parameters: Mapping[str, str], kind: str) -> Callable[["Json"], bool]:
    """A function that tells whether a list with these parameters shows an object of a kind."""
    project = parameters.get("projectid", "")
    everything = parameters.get("listall") == "true"

    def is_shown(one: "Json") -> bool:
        owner = owner_of(world, kind, one)
        if project == ALL_PROJECTS:
            if owner in world.projects:
                return _may_enter(world, owner)
            return everything and (world.is_admin or owner == MAIN)
        if project:
            return owner == project
        if owner in world.projects:
            return False
        return owner == MAIN or (world.is_admin and everything)

    if project and project != ALL_PROJECTS:
        _enter(world, project)
    return is_shown


def check_access(world: "World", kind: str, one: "Json") -> None:
    """Refuse an object, named by its id, that is neither the caller's nor of a project of theirs."""
    owner = owner_of(world, kind, one)
    is_theirs = _may_enter(world, owner) if owner in world.projects else owner == MAIN
    if not (is_theirs or world.is_admin):
        raise Refusal(
            531, f"Account {MAIN} does not have permission to operate with resource {one['id']}"
        )


def check_same_owner(world: "World", *named: tuple[str, "Json"]) -> None:
    """Refuse objects of several owners in one command."""
    if len({owner_of(world, kind, one) for kind, one in named}) > 1:
        raise Refusal(531, "the resources belong to different accounts")


def _may_enter(world: "World", project: str) -> bool:
    return world.is_admin or MAIN in world.projects[project]["members"]


def _enter(world: "World", project: str) -> None:
    if project not in world.projects:
        raise Refusal(431, absent("projectid", project))
    if not _may_enter(world, project):
        raise Refusal(531, f"Account {MAIN} can't access project id={project}")
