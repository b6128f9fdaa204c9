"""Bounds from operations, bytes and a data sheet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.planning.hlo import Collective
from jax_sentemb.planning.roofline import bound, product_flop, sent_bytes
from jax_sentemb.planning.targets import CHIPS

X, W = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((32, 64), (64, 16)))


def flop(function, *shapes):
    return product_flop(jax.make_jaxpr(function)(*shapes).jaxpr)


def test_flop_of_products():
    once = 2 * 32 * 64 * 16
    assert flop(jnp.matmul, X, W) == once
    assert flop(jax.jit(lambda x, w: jnp.tanh(x @ w)), X, W) == once
    assert flop(jax.grad(lambda w, x: jnp.sin(x @ w).sum()), W, X) == 2 * once
    assert flop(jax.vmap(jnp.matmul, (0, None)), jax.ShapeDtypeStruct((5, 32, 64), np.float32), W) == 5 * once


def test_loops_branches_and_platforms():
    square = jax.ShapeDtypeStruct((64, 64), np.float32)
    one = 2 * 32 * 64 * 64

    def loop(x, w):
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=7)[0]

    def platforms(x, w):
        return jax.lax.platform_dependent(x, w, cpu=lambda x, w: x @ w, default=lambda x, w: x @ w @ w)

    assert flop(loop, X, square) == 7 * one
    assert flop(jax.checkpoint(loop), X, square) == 7 * one
    assert flop(lambda x, w: jax.lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: x), X, square) == one
    assert flop(platforms, X, square) == 2 * one


def test_products_that_nobody_reads_are_not_counted():
    square = jax.ShapeDtypeStruct((64, 64), np.float32)

    def both(x, w):
        return x @ w, x @ w @ w

    @jax.jit
    def first_only(x, w):
        return jax.lax.scan(lambda x, _: (jax.jit(both)(x, w)[0], None), both(x, w)[0], None, length=7)[0]

    assert flop(first_only, X, square) == 8 * 2 * 32 * 64 * 64


def test_flop_of_a_convolution():
    x, kernel = jax.ShapeDtypeStruct((2, 8, 20), np.float32), jax.ShapeDtypeStruct((6, 8, 3), np.float32)

    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (1,), "VALID")

    assert flop(convolve, x, kernel) == 2 * (2 * 6 * 18) * (8 * 3)


@pytest.mark.parametrize(
    ("kind", "bytes_"), [("all-reduce", 1500), ("all-gather", 750), ("reduce-scatter", 750), ("collective-permute", 1000)]
)
def test_bytes_that_a_device_sends(kind, bytes_):
    assert sent_bytes(Collective(kind, 4, 1, 1000)) == bytes_


def test_the_slowest_resource_is_the_bound():
    chip = CHIPS["v5e"]
    found = bound(chip, "bfloat16", 197e12, 819e9 * 2, [Collective("all-gather", 2, 1, 200e9)])
    assert found == pytest.approx((1.0, 2.0, 0.5))
    assert (found.seconds, found.limit) == (pytest.approx(2.0), "memory")
    assert bound(chip, "float32", 197e12, 0, []).limit == "compute"
    assert bound(chip, "float32", 197e12, 0, []).compute == pytest.approx(6)


def test_a_group_of_several_machines_goes_over_their_network():
    chip, gather = CHIPS["h100"], Collective("all-gather", 8, 1, 8e9)
    inside, outside = (bound(chip, "bfloat16", 0, 0, [gather._replace(group=size)]).network for size in (8, 16))
    assert outside > 8 * inside
