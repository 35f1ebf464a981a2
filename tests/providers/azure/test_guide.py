"""The guide has exactly the annotations and the keys that the code knows."""

import msgspec

from proreus.kube.objects import ObjectMeta, Service, ServicePort, ServiceSpec
from proreus.providers.azure.balancing.annotations import PREFIX, read_options
from proreus.providers.azure.config import AzureConfig, Unused

from ..guides import Guide, Watched, keys  # noqa: TID252 - pytest imports tests by path

GUIDE = Guide("azure")


class Asked(Watched):
    """Some annotations, since others are looked for only beside them."""

    def __getitem__(self, name: str) -> str:
        self.read.add(name.removeprefix(self.prefix).replace("port_80_", "port_<n>_"))
        if name.endswith(("-internal", "-interval", "-num-of-probe", "_interval", "_num-of-probe")):
            return "true" if name.endswith("-internal") else "5"
        if name.endswith("azure-pls-create"):
            return "true"
        raise KeyError(name)


def test_the_table_of_annotations_has_those_that_are_read() -> None:
    watched = Asked(PREFIX)
    meta = msgspec.structs.replace(ObjectMeta(name="web"), annotations=watched)
    spec = ServiceSpec(type="LoadBalancer", ports=(ServicePort(80),))
    read_options(Service(metadata=meta, spec=spec))
    assert sorted(GUIDE.names("annotation")) == sorted(watched.read)


def test_the_table_of_the_cloud_config_has_its_keys() -> None:
    known = [key for key in keys(AzureConfig) if key not in keys(Unused)]
    assert sorted(GUIDE.names("key")) == sorted(known)
