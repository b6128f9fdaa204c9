"""Measure a search service: requests a second and latency at several numbers of clients.

    python benchmarks/service.py --url http://127.0.0.1:8000/search --queries queries.txt --clients 1 8 32 --pid PID

Each client sends one request after another over its own connection, with the next line of the file as `query`. The first two
seconds are not counted, nor are requests that end after the time. Any answer but 200 ends the measurement. With the process number
of the server, the table also has its processor time, which other programs on the machine disturb less than the other columns.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import time
from pathlib import Path

import httpx


async def client(session, url, queries, start, end):
    """Return the seconds that each request between `start` and `end` took."""
    seconds = []
    while time.perf_counter() < end:
        sent = time.perf_counter()
        (await session.get(url, params={"query": next(queries)})).raise_for_status()
        received = time.perf_counter()
        if sent >= start and received <= end:
            seconds.append(received - sent)
    return seconds


async def measure(url, queries, clients, seconds, warm):
    """Return the sorted latencies, in seconds, of the requests of `clients` clients."""
    queries = itertools.cycle(queries)
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=clients)) as session:
        start = time.perf_counter() + warm
        runs = await asyncio.gather(*(client(session, url, queries, start, start + seconds) for _ in range(clients)))
    return sorted(itertools.chain.from_iterable(runs))


def percentile(ordered, percent):
    """Return the value below which `percent` of the ordered values lie, by the nearest rank."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]


def processor_seconds(pid):
    """Return the processor time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def row(options, queries, clients):
    """Return the medians over the rounds: requests a second, p50 and p95 in ms, ms of processor time a request."""
    rounds = []
    for _ in range(options.rounds):
        before = processor_seconds(options.pid) if options.pid else 0.0
        latencies = asyncio.run(measure(options.url, queries, clients, options.seconds, options.warm))
        used = processor_seconds(options.pid) - before if options.pid else 0.0
        rate = len(latencies) / options.seconds
        requests = rate * (options.seconds + options.warm)  # those of the first seconds cost time too
        rounds.append((rate, *(1000 * percentile(latencies, percent) for percent in (50, 95)), 1000 * used / requests))
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--queries", type=Path, required=True, help="a text file with a query on each line")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm", type=float, default=2, help="seconds before these, which are not counted")
    parser.add_argument("--rounds", type=int, default=3, help="how often each number of clients is measured; medians are printed")
    parser.add_argument("--pid", type=int, help="the process number of the server")
    options = parser.parse_args()
    queries = [line for line in options.queries.read_text(encoding="utf-8").splitlines() if line.strip()]
    print("| clients | requests/s | p50, ms | p95, ms | processor ms a request |\n|--:|--:|--:|--:|--:|")
    for clients in options.clients:
        rate, middle, high, used = row(options, queries, clients)
        print(f"| {clients} | {rate:.1f} | {middle:.0f} | {high:.0f} | {used:.1f} |", flush=True)


if __name__ == "__main__":
    main()
