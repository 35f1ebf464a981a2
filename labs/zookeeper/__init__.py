"""A real ZooKeeper to test on."""

from labs.zookeeper.program import NoZooKeeper, classpath
from labs.zookeeper.server import ZooKeeperServer

__all__ = ["NoZooKeeper", "ZooKeeperServer", "classpath"]
