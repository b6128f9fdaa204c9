"""What is read from a compiled program's text, on texts with known answers and on a program that the CPU's compiler made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.planning.hlo import Collective, Program

LOOP = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

%fused_slice (param_0: f32[12,128,256], param_1: s32[]) -> f32[128,256] {
  %param_0 = f32[12,128,256]{2,1,0:T(8,128)} parameter(0)
  %param_1 = s32[]{:T(128)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  %taken = f32[1,128,256]{2,1,0:T(8,128)} dynamic-slice(%param_0, %param_1, %zero, %zero), dynamic_slice_sizes={1,128,256}
  ROOT %flat = f32[128,256]{1,0:T(8,128)} bitcast(%taken)
}

%fused_update (param_0.1: f32[12,128,256], param_1.1: s32[], param_2.1: f32[128,256]) -> f32[12,128,256] {
  %param_0.1 = f32[12,128,256]{2,1,0:T(8,128)} parameter(0)
  %param_2.1 = f32[128,256]{1,0:T(8,128)} parameter(2)
  %one = f32[1,128,256]{2,1,0:T(8,128)} bitcast(%param_2.1)
  %param_1.1 = s32[]{:T(128)} parameter(1)
  %zero.1 = s32[]{:T(128)} constant(0)
  ROOT %updated = f32[12,128,256]{2,1,0:T(8,128)} dynamic-update-slice(%param_0.1, %one, %param_1.1, %zero.1, %zero.1)
}

%body (carry: (s32[], f32[12,128,256], f32[12,128,256])) -> (s32[], f32[12,128,256], f32[12,128,256]) {
  %carry = (s32[]{:T(128)}, f32[12,128,256]{2,1,0:T(8,128)}, f32[12,128,256]{2,1,0:T(8,128)}) parameter(0)
  %step = s32[]{:T(128)} get-tuple-element(%carry), index=0
  %all = f32[12,128,256]{2,1,0:T(8,128)} get-tuple-element(%carry), index=1
  %out = f32[12,128,256]{2,1,0:T(8,128)} get-tuple-element(%carry), index=2
  %row = f32[128,256]{1,0:T(8,128)} fusion(%all, %step), kind=kLoop, calls=%fused_slice
  %sum = f32[128,256]{1,0:T(8,128)} all-reduce(%row), replica_groups=[2,4]<=[8], to_apply=%add, metadata={op_name="jit(f)/sum"}
  %next = f32[12,128,256]{2,1,0:T(8,128)} fusion(%out, %step, %sum), kind=kLoop, calls=%fused_update
  ROOT %tuple = (s32[]{:T(128)}, f32[12,128,256]{2,1,0:T(8,128)}, f32[12,128,256]{2,1,0:T(8,128)}) tuple(%step, %all, %next)
}

%condition (carry.1: (s32[], f32[12,128,256], f32[12,128,256])) -> pred[] {
  %carry.1 = (s32[]{:T(128)}, f32[12,128,256]{2,1,0:T(8,128)}, f32[12,128,256]{2,1,0:T(8,128)}) parameter(0)
  %step.1 = s32[]{:T(128)} get-tuple-element(%carry.1), index=0
  %count = s32[]{:T(128)} constant(12)
  ROOT %less = pred[]{:T(512)} compare(%step.1, %count), direction=LT
}

ENTRY %main (a: f32[12,128,256], b: f32[12,128,256]) -> f32[12,128,256] {
  %a = f32[12,128,256]{2,1,0:T(8,128)} parameter(0)
  %b = f32[12,128,256]{2,1,0:T(8,128)} parameter(1)
  %start = s32[]{:T(128)} constant(0)
  %first = (s32[]{:T(128)}, f32[12,128,256]{2,1,0:T(8,128)}, f32[12,128,256]{2,1,0:T(8,128)}) tuple(%start, %a, %b)
  %loop = (s32[], f32[12,128,256]{2,1,0:T(8,128)}, f32[12,128,256]{2,1,0:T(8,128)}) while(%first), condition=%condition, body=%body
  ROOT %found = f32[12,128,256]{2,1,0:T(8,128)} get-tuple-element(%loop), index=2
}
"""
ROW = 128 * 256 * 4


def program(lines, signature="(a: f32[8]) -> f32[8]"):
    return Program("ENTRY %main " + signature + " {\n  " + "\n  ".join(lines) + "\n}\n")


def test_a_loop_counts_as_often_as_it_runs_and_a_slice_for_what_it_takes():
    found = Program(LOOP)
    # In each of 12 runs: the slice is read and written, reduced (read, written), and written into its place.
    assert found.moved_bytes() == pytest.approx(12 * (2 * ROW + 2 * ROW + 2 * ROW), rel=1e-4)
    assert found.collectives(8) == [Collective("all-reduce", 4, 12, 12 * ROW)]


def test_the_compilers_own_count_of_a_loop_wins():
    known = LOOP.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"5"}}')
    assert Program(known).collectives(8)[0].times == 5


SCATTERED = """\
%all-reduce-scatter.1 (input: f32[512,256]) -> f32[64,256] {
  %input = f32[512,256]{1,0:T(8,128)} parameter(0)
  %sum = f32[512,256]{1,0:T(8,128)} all-reduce(%input), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
  %place = s32[]{:T(128)} constant(0)
  ROOT %own = f32[64,256]{1,0:T(8,128)} dynamic-slice(%sum, %place, %place), dynamic_slice_sizes={64,256}
}

ENTRY %main (a: f32[512,256]) -> f32[64,256] {
  %a = f32[512,256]{1,0:T(8,128)} parameter(0)
  ROOT %part = f32[64,256]{1,0:T(8,128)} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_a_sum_of_which_each_device_keeps_a_part_is_a_reduce_scatter():
    assert Program(SCATTERED).collectives(8) == [Collective("reduce-scatter", 8, 1, 512 * 256 * 4)]


def test_collectives_by_kind_and_group():
    found = program(
        [
            "%a = f32[8]{0} parameter(0)",
            "%g = f32[64]{0} all-gather(%a), replica_groups=[1,8]<=[8], dimensions={0}",
            "%s = (f32[8]{0}, f32[64]{0}) all-gather-start(%a), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}",
            "%d = f32[64]{0} all-gather-done(%s)",
            "%r = f32[2]{0} reduce-scatter(%a), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add",
            "%p = f32[8]{0} collective-permute(%a), source_target_pairs={{0,1},{1,0}}",
            "%two = (f32[8]{0}, bf16[4]{0}) all-reduce(%a, %a), replica_groups={}, to_apply=%add",
        ]
    )
    assert found.collectives(16) == [
        Collective("all-gather", 8, 2, 512.0),
        Collective("all-reduce", 16, 1, 40.0),
        Collective("collective-permute", 2, 1, 32.0),
        Collective("reduce-scatter", 4, 1, 32.0),
    ]


def test_a_collective_that_several_fusions_show_is_one():
    part = """
%part_{number} (param: f32[8]) -> f32[64] {{
  %param = f32[8]{{0}} parameter(0)
  ROOT %all = f32[64]{{0}} all-gather(%param), replica_groups=[1,8]<=[8], frontend_attributes={{chain_id="{chain}"}}
}}
"""
    lines = [f"%fusion_{number} = f32[64]{{0}} fusion(%a), kind=kCustom, calls=%part_{number}" for number in range(3)]
    text = "".join(part.format(number=number, chain=chain) for number, chain in enumerate((1, 1, 2)))
    entry = "ENTRY %main (a: f32[8]) -> f32[64] {\n  " + "\n  ".join(["%a = f32[8]{0} parameter(0)", *lines]) + "\n}\n"
    assert Program(text + entry).collectives(8) == [Collective("all-gather", 8, 2, 2 * 64 * 4.0)]


def test_arrays_on_the_chip_are_no_traffic():
    found = program(["%a = f32[8]{0} parameter(0)", "%b = f32[8]{0:T(8)S(1)} copy(%a)", "ROOT %c = f32[8]{0} negate(%b)"])
    assert found.moved_bytes() == 64
    assert found.moved_bytes(hbm_only=False) == 128


def test_a_slice_that_is_fetched_counts_for_itself():
    found = program(
        [
            "%a = f32[800]{0:T(1024)} parameter(0)",
            "%s = ((f32[800]{0:T(1024)}), f32[100]{0:T(1024)S(1)}, s32[]{:S(2)}) slice-start(%a), slice={[0:100]}",
            "%d = f32[100]{0:T(1024)S(1)} slice-done(%s)",
            "%c = (f32[800]{0:T(1024)S(1)}, f32[800]{0:T(1024)}, u32[]{:S(2)}) copy-start(%a)",
        ]
    )
    assert found.moved_bytes() == 400 + 3200
    assert found.moved_bytes(hbm_only=False) == 800 + 6400


@pytest.mark.parametrize(
    ("array", "size", "padded"),
    [("f32[3,100]{1,0:T(8,128)}", 1200, 8 * 128 * 4), ("bf16[64,64]{1,0:T(8,128)(2,1)}", 8192, 16384), ("f32[]{:T(128)}", 4, 4)],
)
def test_padding_of_tiles(array, size, padded):
    assert program([f"%a = {array} negate(%b)"]).padding() == pytest.approx(1 - size / padded)


def test_largest_arrays_name_their_operation():
    assert Program(LOOP).largest(1) == [(12 * ROW, "f32[12,128,256]", "fusion")]
    assert (ROW, "f32[128,256]", "sum") in Program(LOOP).largest()


@pytest.mark.usefixtures("optimized_compilation")
def test_a_program_of_the_compiler_here():
    def chain(weights, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    shapes = jax.ShapeDtypeStruct((6, 64, 64), np.float32), jax.ShapeDtypeStruct((32, 64), np.float32)
    moved = Program(jax.jit(chain).lower(*shapes).compile().as_text()).moved_bytes()
    once = 6 * 64 * 64 * 4  # each weight is read once
    assert once < moved < 6 * once
