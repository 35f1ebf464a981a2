"""Judge the pods of speakers by what the API server shows of them. Pure.

A speaker publishes whether it is well by its readiness, and no more: what it announces follows from
the objects that it reads.
"""

from collections.abc import Mapping
from typing import Final

from proreus.app.doctor.observed import ContainerStatus, Pod
from proreus.kube.objects import condition

SPEAKERS: Final = "app.kubernetes.io/component=bgp-speaker"
"""The label by which speakers' pods and DaemonSets are known; those of the chart have it."""
CONTAINER: Final = "bgp-speaker"
"""The speaker's container; the others are FRR's."""
UNHEARD: Final = "FRR does not answer, or no peer has a session"


def is_speaker(labels: Mapping[str, str]) -> bool:
    """Tell whether an object with these labels is a speaker's."""
    key, _, value = SPEAKERS.partition("=")
    return labels.get(key) == value


def problem(pod: Pod) -> str:
    """Return why a speaker's pod is not well, or ""."""
    ready = condition(pod.status.conditions, "Ready")
    if ready is not None and ready.status == "True":
        return ""
    found = [text for one in pod.status.container_statuses if (text := _waits(one))]
    if found:
        return "; ".join(found)
    if not pod.status.container_statuses:
        return f"its pod is {pod.status.phase or 'new'}"
    unready = [one.name for one in pod.status.container_statuses if not one.ready]
    return UNHEARD if unready == [CONTAINER] else f"not ready: {', '.join(unready) or 'the pod'}"


def _waits(one: ContainerStatus) -> str:
    """Return why a container does not run, or "": a reason such as CrashLoopBackOff."""
    if one.state.waiting is None:
        return ""
    restarts = f" after {one.restart_count} restarts" if one.restart_count else ""
    message = f" ({one.state.waiting.message})" if one.state.waiting.message else ""
    return f"{one.name}: {one.state.waiting.reason or 'waiting'}{restarts}{message}"
