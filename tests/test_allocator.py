"""Memory that is freed stays with the process until it is returned; measured in processes of their own."""

import os
import platform
import subprocess
import sys
import textwrap

import pytest

from jax_sentemb.system.allocator import USER_VARIABLES

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
PAGES = 25_000  # of 4 KB in a buffer of 100 MB, which is more than glibc ever keeps without the setting


def measured(body, **variables):
    """What a new process prints, as numbers; without the user's settings of malloc."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(USER_VARIABLES)}
    program = "import resource, threading\nfrom jax_sentemb.system import allocator\n" + textwrap.dedent(body)
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment | variables, capture_output=True, text=True, check=True, timeout=120
    )
    return [int(line) for line in found.stdout.split()]


REUSE = """
    allocator.keep_freed_memory()
    def use():  # in a thread, as XLA's
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            bytearray(SIZE)[:: 4096] = bytes(-(-SIZE // 4096))
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("megabytes", [100, 2200])  # a step of BERT-base has temporaries above 2^31 bytes
def test_a_large_buffer_is_used_again(megabytes):
    pages = PAGES * megabytes // 100
    first, *others = measured(REUSE.replace("SIZE", str(megabytes * 1_000_000)))
    assert first > pages * 0.9
    assert max(others) < pages * 0.01


def test_the_settings_of_the_user_stay():
    assert min(measured(REUSE.replace("SIZE", "100_000_000"), MALLOC_CHECK_="0")) > PAGES * 0.9


def test_what_is_free_is_returned():
    kept, returned = measured("""
        allocator.keep_freed_memory()
        def resident():
            return int(open("/proc/self/statm").read().split()[1])
        block = bytearray(100_000_000)
        after = bytearray(1000)  # above it on the heap, so that the end of the heap is in use
        start = resident()
        del block
        print(start - resident())
        allocator.return_freed_memory()
        print(start - resident())
    """)
    assert kept < PAGES * 0.01
    assert returned > PAGES * 0.9
