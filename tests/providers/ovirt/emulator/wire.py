"""What the emulated engine writes: documents of the API's versions 4 and 3."""

from collections.abc import Collection
from typing import Final
from xml.etree import ElementTree as ET

from .world import Device, Named, Nic, Vm, World

BASE: Final = "/ovirt-engine/api"
SUBCOLLECTIONS: Final = (
    "permissions", "diskattachments", "nics", "snapshots", "reporteddevices", "statistics", "tags",
)  # fmt: skip


class Unfollowed(Exception):
    """The signal that something is to be followed which is no link."""


def vms(world: World, found: Collection[Vm], follow: str = "") -> ET.Element:
    """A list of machines; what `follow` names is in them."""
    root = ET.Element("vms")
    for vm in found:
        root.append(vm_element(world, vm, follow))
    return root


def vm_element(world: World, vm: Vm, follow: str = "") -> ET.Element:
    """One machine. As the engine does, it repeats all devices below each network card."""
    element = _object("vm", vm.id, "vms")
    _texts(element, comment=vm.comment, description=vm.description, name=vm.name)
    if vm.fqdn:
        _texts(element, fqdn=vm.fqdn)
    _texts(element, memory=str(vm.memory), status=vm.status, type="server", stateless="false")
    element.append(_object("cluster", vm.cluster, "clusters"))
    if vm.host and vm.status != "down":
        element.append(_object("host", vm.host, "hosts"))
    if vm.instance_type:
        element.append(_object("instance_type", vm.instance_type, "instancetypes"))
    for rel in SUBCOLLECTIONS:
        ET.SubElement(element, "link", {"href": f"{BASE}/vms/{vm.id}/{rel}", "rel": rel})
    for path in filter(None, follow.split(",")):
        _follow(element, vm, [part.replace("_", "").lower() for part in path.split(".")])
    return element


def _follow(element: ET.Element, vm: Vm, path: list[str]) -> None:
    if path == ["nics"]:
        element.append(nics(vm))
    elif path == ["reporteddevices"]:
        element.append(devices(vm))
    elif path == ["nics", "reporteddevices"]:
        _follow(element, vm, ["nics"])
        for nic in element.iterfind("nics/nic"):
            nic.append(devices(vm))
    else:
        raise Unfollowed(".".join(path))


def nics(vm: Vm) -> ET.Element:
    """The network cards of a machine."""
    root = ET.Element("nics")
    for nic in vm.nics:
        root.append(nic_element(vm, nic))
    return root


def nic_element(vm: Vm, nic: Nic) -> ET.Element:
    element = _object("nic", nic.id, f"vms/{vm.id}/nics")
    _texts(element, interface="virtio", linked="true", name=nic.name, plugged="true")
    _texts(ET.SubElement(element, "mac"), address=nic.mac)
    element.append(_object("vm", vm.id, "vms"))
    rel = "reporteddevices"
    ET.SubElement(element, "link", {"href": f"{BASE}/vms/{vm.id}/nics/{nic.id}/{rel}", "rel": rel})
    return element


def devices(vm: Vm) -> ET.Element:
    """What the guest of a machine reports."""
    root = ET.Element("reported_devices")
    for at, device in enumerate(vm.devices):
        root.append(device_element(vm, device, at))
    return root


def device_element(vm: Vm, device: Device, at: int) -> ET.Element:
    element = _object("reported_device", f"{at:032x}", f"vms/{vm.id}/reporteddevices")
    _texts(element, description="guest reported data", name=device.name, type="network")
    if device.ips:
        ips = ET.SubElement(element, "ips")
        for ip in sorted(device.ips, key=lambda one: ":" in one):
            version = "v6" if ":" in ip else "v4"
            _texts(ET.SubElement(ips, "ip"), address=ip, version=version)
    _texts(ET.SubElement(element, "mac"), address=device.mac)
    element.append(_object("vm", vm.id, "vms"))
    return element


def named(plural: str, singular: str, path: str, found: Collection[Named]) -> ET.Element:
    """A list of data centers, clusters or instance types."""
    root = ET.Element(plural)
    for one in found:
        element = _object(singular, one.id, path)
        _texts(element, name=one.name)
        if singular == "cluster" and one.parent:
            element.append(_object("data_center", one.parent, "datacenters"))
        root.append(element)
    return root


def api(version: tuple[int, int]) -> ET.Element:
    """The root of the API."""
    root = ET.Element("api")
    info = ET.SubElement(root, "product_info")
    _texts(info, name="oVirt Engine", vendor="ovirt.org")
    major, minor = version
    whole = f"{major}.{minor}.0-1.el9"
    parts = {"build": "0", "major": str(major), "minor": str(minor), "revision": "0"}
    number = ET.Element("version")
    _texts(number, **parts, full_version=whole)
    info.append(number)
    return root


def fault(reason: str, detail: str) -> ET.Element:
    root = ET.Element("fault")
    _texts(root, detail=detail, reason=reason)
    return root


def vms_3(found: Collection[Vm]) -> ET.Element:
    """A list of machines in version 3, for the provider inside old Kubernetes."""
    root = ET.Element("vms")
    for vm in found:
        element = ET.SubElement(root, "vm", {"id": vm.id, "href": f"{BASE}/v3/vms/{vm.id}"})
        _texts(element, name=vm.name)
        _texts(ET.SubElement(element, "status"), state=vm.status)
        ET.SubElement(element, "cluster", {"id": vm.cluster})
        if vm.fqdn or vm.devices:
            info = ET.SubElement(element, "guest_info")
            ips = ET.SubElement(info, "ips")
            for device in vm.devices:
                for ip in device.ips:
                    ET.SubElement(ips, "ip", {"address": ip})
            _texts(info, fqdn=vm.fqdn)
    return root


def _object(tag: str, id_: str, path: str) -> ET.Element:
    return ET.Element(tag, {"href": f"{BASE}/{path}/{id_}", "id": id_})


def _texts(element: ET.Element, **texts: str) -> None:
    for tag, text in texts.items():
        ET.SubElement(element, tag).text = text
