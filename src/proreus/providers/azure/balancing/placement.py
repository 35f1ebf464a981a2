"""Choose the load balancer that each Service is placed on. Pure."""

from collections.abc import Sequence

import msgspec

from proreus.providers.azure.balancing.parts import Job, Scene, State


def placed(jobs: Sequence[Job], state: State, scene: Scene) -> list[Job]:
    """Return the Services of a pass, each with the name of its load balancer.

    Args:
        jobs: The Services; those that go have none.
        state: What there is.
        scene: What does not change within the pass.
    """
    del state
    return [
        job
        if job.lb is None
        else msgspec.structs.replace(
            job, balancer=scene.place.balancer_name(internal=job.options.internal)
        )
        for job in jobs
    ]
