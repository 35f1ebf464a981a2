# mypy: ignore-errors
"""Serves WSGI applications on loopback, each request in a thread."""

import threading
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(WSGIRequestHandler):
    def log_message(self, *_):
        """Say nothing: the services log themselves."""

    def address_string(self):
        """Not the name, which would be looked up."""
        return self.client_address[0]


def serve(app, port):
    """Serve for ever."""
    make_server("127.0.0.1", int(port), app, _Server, _Handler).serve_forever()


def serve_beside(app, port):
    """Serve in a thread."""
    threading.Thread(target=serve, args=(app, port), daemon=True).start()
