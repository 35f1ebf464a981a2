"""A node as kube-proxy makes one: it answers at the load balancers' addresses and at its check.

Run as a program: `traffic_node.py NAME ADDRESS...`. It reads what its check is to answer, one
status a line, from its input and ends with it. Each answer to a client is the node's name and the
client's address as the node sees it.
"""

import asyncio
import os
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from typing import Any

HEALTH_PORT = 10256
PORTS = (80, 81, 7299)


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, name: str) -> None:
        self.name = name

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, peer: Any) -> None:
        self.transport.sendto(f"{self.name} {peer[0]}".encode(), peer)


async def main(name: str, addresses: Sequence[str]) -> None:
    status = "200 OK"

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        while await reader.readline():
            peer = writer.get_extra_info("peername")[0]
            writer.write(f"{name} {peer}\n".encode())
            await writer.drain()
        writer.close()

    async def check(reader: StreamReader, writer: StreamWriter) -> None:
        while (await reader.readline()).strip():
            pass
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    await asyncio.start_server(check, None, HEALTH_PORT)
    for address in addresses:
        for port in PORTS:
            await asyncio.start_server(serve, address, port)
            await loop.create_datagram_endpoint(lambda: Datagrams(name), (address, port))
        stream(address, name, tasks)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print("ready", flush=True)
    while line := await orders.readline():
        status = line.decode().strip()
        print("done", flush=True)
    os._exit(0)  # without a word about the connections that there are


def stream(address: str, name: str, tasks: list[asyncio.Task[None]]) -> None:
    """SCTP, where the kernel has it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sctp = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    except OSError:
        return
    sctp.bind((address, PORTS[0]))
    sctp.listen()
    sctp.settimeout(0)
    tasks.append(asyncio.create_task(accept(sctp, name)))


async def accept(sctp: socket.socket, name: str) -> None:
    loop = asyncio.get_running_loop()
    while True:
        connection, peer = await loop.sock_accept(sctp)
        await loop.sock_sendall(connection, f"{name} {peer[0]}\n".encode())
        connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
