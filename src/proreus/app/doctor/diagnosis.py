"""Collect all findings, causes before their consequences. Pure."""

from collections.abc import Iterable

import msgspec

from proreus.app.doctor import (
    bare_metal,
    certificates,
    cloud,
    manager,
    nodes,
    out_of_service,
    services,
    speakers,
    volumes,
)
from proreus.app.doctor.observed import Finding, Observed


class Diagnosis(msgspec.Struct, frozen=True):
    """The findings, what could not be read (`unread`), and what was left out, and why (`notes`)."""

    findings: tuple[Finding, ...]
    unread: tuple[str, ...]
    notes: tuple[str, ...]
    nodes: int
    services: int

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if all is well, 1 if something is wrong, 2 if something is unread."""
        if self.findings:
            return 1
        return 2 if self.unread else 0


def diagnose(observed: Observed, *, node: str = "", service: str = "") -> Diagnosis:
    """Collect the findings about everything that was read.

    Args:
        observed: Everything that was read.
        node: Report only on this node.
        service: Report only on this Service: namespace/name or name.
    """
    about_nodes = _with_clouds(
        (
            *nodes.findings(observed),
            *out_of_service.findings(observed),
            *certificates.findings(observed),
            *speakers.missing(observed),
        ),
        observed,
    )
    about_services = _with_clouds(services.findings(observed), observed)
    about_volumes = () if node or service else tuple(volumes.findings(observed))
    if node or service:
        about_nodes = tuple(finding for finding in about_nodes if finding.about == f"node/{node}")
        about_services = tuple(finding for finding in about_services if _is_meant(finding, service))
    return Diagnosis(
        findings=(
            *cloud.findings(observed),
            *manager.findings(observed),
            *bare_metal.findings(observed),
            *speakers.findings(observed),
            *about_nodes,
            *about_services,
            *about_volumes,
        ),
        unread=observed.unread,
        notes=observed.notes,
        nodes=len(observed.nodes),
        services=len(observed.services),
    )


def _with_clouds(findings: Iterable[Finding], observed: Observed) -> tuple[Finding, ...]:
    if observed.cloud is None:
        return tuple(findings)
    return tuple(
        msgspec.structs.replace(one, cloud=observed.cloud.of(one.about)) for one in findings
    )


def _is_meant(finding: Finding, service: str) -> bool:
    wanted = service if "/" in service else f"default/{service}"
    return bool(service) and finding.about == f"service/{wanted}"
