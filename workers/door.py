"""``python -m workers.door``: TLS in front of servers that speak in the open on loopback.

A client that is served here says who it is to the server behind; the door only keeps others from listening.
PostgreSQL's clients come with ``sslnegotiation=direct``, Valkey's with ``rediss://``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import ssl
import sys

CHUNK = 2**16
#: Direct TLS to PostgreSQL insists on its name; clients of Valkey name no protocol.
PROTOCOLS = ["postgresql"]


def main(arguments: list[str]) -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="workers.door", description="TLS in front of other servers")
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("doors", nargs="+", metavar="LISTEN:PORT=HOST:PORT")
    asked = parser.parse_args(arguments)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(asked.certificate, asked.key)
    context.set_alpn_protocols(PROTOCOLS)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(asked.doors, context))


async def serve(doors: list[str], context: ssl.SSLContext) -> None:
    """All doors at once."""
    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for door in doors:
            (host, port), target = (place(part) for part in door.split("=", 1))
            pass_on = functools.partial(connect, target)
            servers.append(
                await stack.enter_async_context(await asyncio.start_server(pass_on, host, port, ssl=context))
            )
        await asyncio.gather(*(server.serve_forever() for server in servers))


async def connect(
    target: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Pass on in both directions until either side ends."""
    try:
        to_reader, to_writer = await asyncio.open_connection(*target)
    except OSError:
        writer.close()
        return
    both = [asyncio.ensure_future(pour(reader, to_writer)), asyncio.ensure_future(pour(to_reader, writer))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in both:
            one.cancel()
        for side in (writer, to_writer):
            side.close()


async def pour(source: asyncio.StreamReader, into: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while chunk := await source.read(CHUNK):
            into.write(chunk)
            await into.drain()


def place(text: str) -> tuple[str, int]:
    """``host:port``, the host in brackets where it has colons."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    main(sys.argv[1:])
