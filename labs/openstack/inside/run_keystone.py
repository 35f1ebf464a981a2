# mypy: ignore-errors
"""Keystone, and a stub for images: `run_keystone.py STATE PORT IMAGE-PORT`."""

import json
import os
import re
import sys

import wsgi_server

_IMAGE = re.compile(r"/v2/images/([0-9a-f-]{36})")
_FIELDS = {
    "id": "", "name": "image", "status": "active", "container_format": "bare",
    "disk_format": "raw", "min_disk": 0, "min_ram": 0, "size": 1, "visibility": "public",
    "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z",
    "checksum": "x", "owner": "x", "tags": [], "protected": False, "file": "", "self": "",
    "schema": "",
}  # fmt: skip


def image_stub(environ, start_response):
    """Answer that every image exists."""
    path = environ["PATH_INFO"]
    found = _IMAGE.fullmatch(path)
    if found:
        body = {**_FIELDS, "id": found[1]}
    elif path.startswith("/v2/schemas"):
        # Its client knows only the fields that this names.
        body = {"name": "image", "properties": {name: {} for name in _FIELDS}, "links": []}
    else:
        link = {"rel": "self", "href": f"http://{environ['HTTP_HOST']}/v2/"}
        body = {"versions": [{"id": "v2.9", "status": "CURRENT", "links": [link]}]}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]


def main():
    """Serve both."""
    state, port, image_port = sys.argv[1:]
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = f"{state}/keystone.conf"
    sys.argv = sys.argv[:1]
    from keystone.server.wsgi import initialize_public_application

    wsgi_server.serve_beside(image_stub, image_port)
    wsgi_server.serve(initialize_public_application(), port)


if __name__ == "__main__":
    main()
