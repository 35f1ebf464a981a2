"""The guide has exactly the annotations and the keys that the code knows."""

from proreus.providers.baidu.balancing.annotations import ADDED_EIP, ADDED_ID, PREFIX, read_options
from proreus.providers.baidu.config import BaiduConfig
from proreus.providers.baidu.routes import ADVERTISE

from ..guides import Guide, Watched, keys  # noqa: TID252 - pytest imports tests by path

GUIDE = Guide("baidu")


def test_the_table_of_annotations_has_those_that_are_read_or_written() -> None:
    given = Watched(
        PREFIX, **{"elastic-ip-payment-timing": "Prepaid", "elastic-ip-reservation-length": "1"}
    )
    read_options(given)
    known = {*given.read, *(one.removeprefix(PREFIX) for one in (ADDED_ID, ADDED_EIP))}
    assert sorted(GUIDE.names(f"annotation, behind `{PREFIX}`")) == sorted(known)
    assert not given.outside
    assert ADVERTISE in GUIDE.text


def test_the_table_of_the_cloud_config_has_its_keys() -> None:
    assert sorted(GUIDE.names("key")) == sorted(keys(BaiduConfig))
