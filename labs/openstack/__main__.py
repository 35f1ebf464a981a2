"""`python -m labs.openstack`: start the cloud, look at it, stop it."""

import argparse
import sys

from labs.openstack import Cloud, OpenStackError, packages, running


def main() -> int:
    """Read the command line and do what it says; answers the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m labs.openstack",
        description="A real OpenStack on this machine, of Debian's packages. Debian 12 only.",
    )
    parser.add_argument("verb", choices=("up", "down", "status", "config", "packages"))
    parser.add_argument("--if-absent", action="store_true", help="do nothing if it runs")
    options = parser.parse_args()
    cloud = Cloud()
    if options.verb == "down":
        cloud.down()
    elif options.verb == "status":
        for name, is_running in cloud.status().items():
            print(f"{name:10} {'runs' if is_running else 'has ended'}")
        return int(running() is None)
    elif options.verb == "config":
        print(cloud.config, end="")
    elif options.verb == "packages":
        try:
            packages.ensure(_report)
        except packages.PackagesError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    elif not (options.if_absent and running()):
        try:
            cloud.up(_report)
        except OpenStackError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print("The cloud is ready; a cloud-config: python -m labs.openstack config")
        print(f"Files and logs: {cloud.state}")
    return 0


def _report(line: str) -> None:
    print(f"openstack: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
