"""Name every operation that is called in a vCenter, with the privilege that it needs there.

The guide's table of rights is made from it, and what stands in for a vCenter in tests refuses
everything else.
"""

from typing import Final

ANONYMOUS: Final = "System.Anonymous"
VIEW: Final = "System.View"
READ: Final = "System.Read"
SEARCHABLE: Final = "Cns.Searchable"

SOAP: Final = {
    "RetrieveServiceContent": ANONYMOUS,
    "Login": ANONYMOUS,
    "Logout": VIEW,
    "CreateContainerView": VIEW,
    "DestroyView": VIEW,
    "CreatePropertyCollector": VIEW,
    "DestroyPropertyCollector": VIEW,
    "CreateFilter": READ,
    "WaitForUpdatesEx": READ,
    "RetrievePropertiesEx": READ,
    "ContinueRetrievePropertiesEx": READ,
    "FindByInventoryPath": VIEW,
    "FindAllByUuid": VIEW,
    "CnsQueryVolume": SEARCHABLE,
}
"""Methods of the SOAP APIs by their privilege (their references, "Required Privileges")."""

REST: Final = {
    "session.create": ANONYMOUS,
    "category.list": READ,
    "category.get": READ,
    "tag.list": READ,
    "tag.get": READ,
    "tag.attached": READ,
}
"""Operations of the Automation API; those of tags need the right to read the tag."""
