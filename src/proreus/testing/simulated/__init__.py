"""The simulated cloud: a process with machines, load balancers, routes and faults.

It is what providers, controllers and benchmarks are tried on: it outlives the process under
test, keeps its state through `kill -9`, really forwards traffic, and can be as slow, forgetful
and broken as real clouds are. Start it with `python -m proreus.testing.simulated --help`, or from
a test with `SimulatedCloudProcess`. This text is the specification of its HTTP API; the cloud
and the provider `simulated` are both written from it and share no code.

Conventions
===========

JSON in and out. `Authorization: Bearer TOKEN`; each token is a credential with quotas of its
own. A refusal has the body `{"error": {"code": CODE, "message": TEXT}}`:

    400 BadRequest        a field is missing, malformed or unknown; an id is malformed
    401 Unauthenticated   no such token
    404 NotFound          no such object
    409 NameTaken         `unique_names` is on and the kind has an object of this name
    409 InUse             other parts still refer to the part
    409 VersionConflict   a change carried another `version` than the object has
    409 LimitExceeded     the route table or the address pool is full
    409 Conflict          the address, port or destination is taken
    429 Throttled         the quota is used up; header `Retry-After` in seconds
    500 Internal          an injected failure

Ids are `PREFIX-` and 12 hexadecimal digits: `i-` instances, `vol-` volumes, `addr-`, `lb-`, `lsn-`,
`fw-`, `rt-`.
Lists are paged: `page_size` (at most, and by default, the setting `page_size`) and `page_token`;
the answer's `next_page_token` is "" on the last page.

Instances (created and ended by the admin API only)
===================================================

    GET  /v1/instances                   {"instances": [I...], "next_page_token": T}
    GET  /v1/instances/{id}              I
    POST /v1/instances:batchGet          {"ids": [...], "names": [...]} ->
         {"instances": [I...], "missing_ids": [...], "missing_names": [...]}
    POST /v1/instances/{id}/pod_cidrs:assign   {"pod_cidrs": [CIDR...]} -> I
    POST /v1/instances/{id}/pod_cidrs:release  {"pod_cidrs": [CIDR...]} -> I
    POST /v1/instances:addSSHKey               {"user", "public_key"} -> {"added": [id...]}

    I = {"id", "name", "region", "zone", "type", "state", "system_uuid", "labels": {}, "tags": {},
         "addresses": [{"type": "InternalIP"|"ExternalIP"|"Hostname"|"InternalDNS", "address"}],
         "pod_cidrs": [CIDR...], "ssh_keys": [USER:KEY...]}

`state` is running, stopped, suspended, terminating or terminated. A terminated instance stays
visible for `tombstone` seconds; with 0 it vanishes at once. Names need not be unique: `names` finds
all. A bulk read takes at most `batch_limit` ids and names together, and one malformed id refuses
the whole call with 400. What is neither in `instances` nor among the missing was not answered.

`pod_cidrs` are blocks of pod addresses. Assigning adds those that the instance does not have yet;
one that overlaps a block of another instance is refused (Conflict). Releasing one that it does
not have is no error. A terminated instance has none.

`addSSHKey` lets a user log in with a key on all instances that there are now, and names those that
did not have it yet. An instance that is started later does not have it.

Volumes (created by the admin API only)
=======================================

    POST /v1/volumes:batchGet            {"ids": [...]} -> {"volumes": [V...], "missing_ids": [...]}

    V = {"id", "region", "zones": [ZONE...]}

A volume can be used in its zones, or in the whole region if it has none.

Parts: address, load_balancer, listener, firewall, route
========================================================

Each is made and deleted by a call of its own; COLLECTION is addresses, load_balancers, listeners,
firewalls or routes.

    POST   /v1/COLLECTION                {"name", "tags": {}, "idempotency_token", ...} -> 201 P
    GET    /v1/COLLECTION/{id}           P
    PATCH  /v1/COLLECTION/{id}           {"version": the one last seen, ...changes} -> P
    DELETE /v1/COLLECTION/{id}           {}
    GET    /v1/resources                 {"resources": [P...], "next_page_token": T}

A create whose idempotency token made a part of that kind which still exists answers 200 with that
part. `GET /v1/resources` filters by `kind`, `name_prefix` and any number of `tag=KEY=VALUE`; with a
prefix it reads the primary copy and is never stale, otherwise it is as late as `list_lag`.

    P = {"kind", "id", "name", "tags": {}, "version", "created", ...}
    address        "address"; on create "address" asks for a certain one, "" for any of the pool.
                   Not deleted while a load balancer has it (InUse).
    load_balancer  "address_id", "internal", "affinity_seconds": int|null, "health_check": {"port",
                   "path"}, "targets": [{"instance_id", "address"}], "state": provisioning|active.
                   All but targets and address_id can be changed. It is `provisioning` for
                   `provision_delay` seconds. Not deleted while listeners or firewalls are on it.
    listener       "load_balancer_id", "protocol": TCP|UDP, "port", "target_port",
                   "proxy_protocol"; "state": pending|active|error with "error". target_port and
                   proxy_protocol can be changed.
    firewall       "load_balancer_id", "source_ranges": [CIDR...], which can be changed. Traffic
                   passes if one firewall of the load balancer lets its source in.
    route          "destination": CIDR, unique; "instance_id", which can be changed: the old way
                   is good until the new one is; "state": active|blackhole.

    GET  /v1/load_balancers/{id}/targets         {"targets": [{"instance_id", "address", "health"}]}
    POST /v1/load_balancers/{id}/targets:add     {"targets": [{"instance_id", "address"}]} ->
         {"load_balancer": P, "rejected": [{"instance_id", "reason"}]}
    POST /v1/load_balancers/{id}/targets:remove  {"instance_ids": [...]} -> {"load_balancer": P}

Adding replaces the address of a target that is there. An instance that is unknown or ending, or
an address that is not one of its own, is rejected; the others are added. `health` is healthy,
unhealthy or unknown.

Traffic: an active load balancer listens on its address and forwards each connection (or UDP
client) to `target_port` of a healthy target, in turn, or by client address with affinity. The
health check is a GET of `path` on `port` (2xx and 3xx are healthy), a TCP connect if `path` is
"", and goes to the listener's target port if `port` is 0. A load balancer whose address somebody
removed listens nowhere: its listeners are in `error`, and the address is free for another.

Admin API (own token)
=====================

    GET    /admin/settings               Settings
    PATCH  /admin/settings               {changes} -> Settings
    POST   /admin/instances              {"instances": [I...]} -> {"instances": [I...]}; an empty
                                         id, system_uuid or addresses is filled in
    PATCH  /admin/instances/{id}         {changes} -> I; "state" stops and starts
    DELETE /admin/instances/{id}         terminates
    POST   /admin/volumes                {"volumes": [V...]} -> {"volumes": [V...]}; an empty id or
                                         region is filled in
    GET    /admin/state                  {"instances": [I...], "parts": [P...]}, never stale
    DELETE /admin/parts/{id}             removes a part, used or not: somebody else's deletion
    POST   /admin/faults                 Fault -> {}
    DELETE /admin/faults                 forgets all faults
    GET    /admin/calls                  {"calls": [Call...], "counters": {OPERATION: {STATUS: n}}}
    DELETE /admin/calls                  forgets calls and counters
    GET    /admin/counters               {"counters": {OPERATION: {STATUS: n}},
                                         "last": {OPERATION: when the last call ended}}

Admin calls are neither logged nor delayed. Settings, faults, calls and quotas live in memory: a
restart forgets them; instances, volumes and parts are on disk before a call is answered. Operations
are named COLLECTION.VERB: instances.list, instances.get, instances.batch_get,
instances.assign_pod_cidrs, instances.release_pod_cidrs, instances.add_ssh_key, volumes.batch_get,
resources.list,
listeners.create, listeners.get, listeners.update, listeners.delete,
load_balancers.list_targets, load_balancers.add_targets, load_balancers.remove_targets, ...
"""

from proreus.testing.simulated.admin import Admin, AdminError, Counters
from proreus.testing.simulated.model import (
    Address,
    Call,
    Fault,
    FaultMode,
    Instance,
    Settings,
    Volume,
)
from proreus.testing.simulated.process import SimulatedCloudProcess

__all__ = [
    "Address",
    "Admin",
    "AdminError",
    "Call",
    "Counters",
    "Fault",
    "FaultMode",
    "Instance",
    "Settings",
    "SimulatedCloudProcess",
    "Volume",
]
