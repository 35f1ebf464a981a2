"""Health checks and announcements of the provider `local`."""

import asyncio
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address

import pytest

from proreus.providers.local.announce import checksum, frames
from proreus.providers.local.config import HealthChecks
from proreus.providers.local.health import Answer, Checker, Streak, ask, weighed
from proreus.providers.local.plan import Check, Condition, Target

SERVING, REFUSING, SILENT = Condition.SERVING, Condition.REFUSING, Condition.SILENT
GOOD, NO = Answer(SERVING, clear=True), Answer(REFUSING, clear=True)
LOST, CLOSED = Answer(SILENT, clear=False), Answer(REFUSING, clear=False)
MAC = bytes.fromhex("020000000001")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ((GOOD,), SERVING),
        ((NO,), REFUSING),
        ((LOST,), None),
        ((LOST, LOST), SILENT),
        ((CLOSED, LOST), SILENT),
        ((LOST, CLOSED), REFUSING),
        ((GOOD, LOST), SERVING),
        ((GOOD, LOST, GOOD, LOST), SERVING),
        ((GOOD, LOST, LOST), SILENT),
        ((LOST, LOST, GOOD), SERVING),
        ((LOST, LOST, NO), REFUSING),
    ],
)
def test_what_is_reported_after_some_answers(
    answers: tuple[Answer, ...], told: Condition | None
) -> None:
    streak = Streak()
    for one in answers:
        streak = weighed(streak, one, threshold=2)
    assert streak.reported is told


@pytest.mark.parametrize(
    ("says", "path", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "/healthz", GOOD),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "/healthz", NO),
        (b"SSH-2.0-x\r\n", "/healthz", NO),
        (b"HTTP/1.1\r\n", "/healthz", NO),
        (b"HTTP/1.1 many\r\n", "/healthz", LOST),
        (b"x" * 100_000, "/healthz", LOST),
        (b"", "/healthz", NO),
        (None, "/healthz", LOST),
        (None, "", GOOD),
    ],
    ids=[
        "good", "bad", "no HTTP", "no status", "no number", "endless", "closes", "hangs", "TCP",
    ],
)  # fmt: skip
async def test_what_an_answer_means(says: bytes | None, path: str, expected: Answer) -> None:
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if says is None:
            await over.wait()
        else:
            await reader.readline()
            writer.write(says)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = await ask(Target("127.0.0.1", Check(port, path)), 1.0 if says is None else 30.0)
    over.set()
    server.close()
    assert found == expected


async def test_a_closed_port_is_a_living_machine() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert await ask(Target("127.0.0.1", Check(port, "/")), 30.0) == CLOSED


async def test_each_target_is_reported_first_and_when_it_changes_and_no_more_when_unwatched() -> (
    None
):
    status = "200 OK"
    told: list[Condition] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        writer.close()

    async def until_told(*expected: Condition) -> None:
        async with asyncio.timeout(60):
            while told != [*expected]:
                await asyncio.sleep(0.01)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    target = Target("127.0.0.1", Check(server.sockets[0].getsockname()[1], "/"))
    settings = HealthChecks(interval=timedelta(milliseconds=10), timeout=timedelta(seconds=30))
    checker = Checker(settings, lambda _, condition: told.append(condition))
    checker.watch([target])
    await until_told(SERVING)
    status = "503 No"
    await until_told(SERVING, REFUSING)
    checker.watch([])
    checker.watch([target])
    await until_told(SERVING, REFUSING, REFUSING)
    await checker.close()
    server.close()


def test_an_ipv4_address_is_announced_by_a_request_and_an_answer() -> None:
    request, answer = frames(IPv4Address("192.0.2.1"), MAC, IPv6Address("::"))
    head = "ffffffffffff0200000000010806000108000604"
    mine = "020000000001c0000201"
    assert request.hex() == head + "0001" + mine + "000000000000" + "c0000201"
    assert answer.hex() == head + "0002" + mine + "ffffffffffff" + "c0000201"


def test_an_ipv6_address_is_announced_to_all_nodes_with_a_right_checksum() -> None:
    source = IPv6Address("fe80::1")
    (frame,) = frames(IPv6Address("2001:db8::1"), MAC, source)
    ethernet, header, message = frame[:14], frame[14:54], frame[54:]
    assert ethernet.hex() == "33330000000102000000000186dd"
    assert header.hex() == "6000000000203aff" + source.packed.hex() + "ff02" + "0" * 27 + "1"
    assert message[0] == 136
    assert message[4:8].hex() == "20000000", "it overrides what neighbours remember"
    assert message[8:24] == IPv6Address("2001:db8::1").packed
    assert message[24:].hex() == "0201" + MAC.hex()
    pseudo = header[8:40] + len(message).to_bytes(4, "big") + (58).to_bytes(4, "big")
    assert checksum(pseudo + message) == 0
