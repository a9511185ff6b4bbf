"""From operators to kernels: against the recorded step of the same workload, and by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from cifar_train.config import TrainConfig
from gpumodel.devices import device
from gpumodel.kernels import launches_of
from gpumodel.kernels.convolutions import shapes_of, solution_of
from gpumodel.kernels.durations import cost_classes
from gpumodel.kernels.matrix_products import choose_tile, parallelism, product
from gpumodel.kernels.multi_tensor import packed
from gpumodel.recording.operators import Operator, TensorInfo
from gpumodel.recording.steps import operators_of_step
from tidyprof.errors import UserError

MI300X = device("MI300X")
RECORDED_STEPS = 3


def operator(name, *inputs, outputs=None, **scalars) -> Operator:
    """An operator on tensors given as (shape, dtype); its first input's shape comes out where
    nothing is said.
    """
    tensors = tuple(TensorInfo(*tensor) for tensor in inputs)
    results = tensors[:1] if outputs is None else tuple(TensorInfo(*tensor) for tensor in outputs)
    return Operator(0, None, name, tensors, results, scalars)


def convolution(
    c, k, size, width, stride=1, n=256, dtype="float16", channels_last=False
) -> Operator:
    """A forward convolution that keeps the map's size, up to the stride."""
    out = -(-size // stride)
    return operator(
        "aten::miopen_convolution",
        ((n, c, size, size), dtype, channels_last),
        ((k, c, width, width), dtype, channels_last),
        outputs=[((n, k, out, out), dtype, channels_last)],
        stride=(stride, stride),
    )


def step_launches(config: TrainConfig, solutions: str = "implicit-gemm") -> list:
    """All launches of a step."""
    operators = operators_of_step(config)
    parents = {each.parent for each in operators}
    return [
        launch
        for each in operators
        if each.index not in parents
        for launch in launches_of(each, MI300X, solutions)
    ]


def count(launches, part: str) -> int:
    """How many names contain the part."""
    return sum(part in launch.name for launch in launches)


@pytest.fixture(scope="module")
def recorded_names(recordings) -> Counter:
    """Kernels and copies of rank 0 in AMD's 4-rank trace, by full name."""
    events = tidyprof.read_torch_trace(
        recordings / "torch-mi300-ddp-4ranks-fused/merged_all_events.json.gz"
    ).events
    device_work = events[
        (events["rank"] == 0) & events["kind"].isin(["kernel", "copy", "fill", "collective"])
    ]
    return Counter(device_work["name"].astype(str))


def test_a_step_launches_the_recorded_kernels_by_full_name_and_number(recorded_names):
    # AMD's trainer computes its loss in float16 and an accuracy (argmax, eq, mean, a product with
    # 100, a cast, prints); Tensile's names are not reproduced.
    differs = (
        "softmax_warp",
        "ArgMaxOps",
        "MeanOps<float",
        "CompareEq",
        "Cijk_",
        "direct_copy",
        "DtoH",
        "MulFunctor",
    )
    modelled = Counter(launch.name for launch in step_launches(TrainConfig(), "winograd"))
    names = {
        name for name in (*modelled, *recorded_names) if not any(part in name for part in differs)
    }
    assert len(names) > 50
    assert {name: modelled[name] * RECORDED_STEPS for name in names} == {
        name: recorded_names[name] for name in names
    }


def test_a_step_launches_as_many_matrix_products_as_recorded(recorded_names):
    recorded = sum(number for name, number in recorded_names.items() if name.startswith("Cijk_"))
    modelled = count(step_launches(TrainConfig(), "winograd"), "Cijk_")
    assert modelled * RECORDED_STEPS == recorded


def test_the_single_process_launches_what_rocprofv3_counted_in_each_step():
    launches = step_launches(TrainConfig())
    # Calls of the published statistics divided by 21 steps.
    for part, calls in {
        "MIOpenBatchNormBwdSpatial": 53,
        "MIOpenBatchNormFwdTrainSpatial": 53,
        "SubTensorOpWithScalar1d": 138,
        "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex0_bt128x128x32": 29,
        "igemm_wrw_gtcx3_nhwc_fp16_bx0_ex1_bt256x256x32": 12,
        "igemm_wrw_gtcx3_nhwc_fp16_bx0_ex0_bt256x256x32": 18,
        "igemm_bwd_gtcx3_nhwc_fp16_bx0_ex0_bt128x128x32": 22,
    }.items():
        assert count(launches, part) == calls, part
    assert count(launches, "Memcpy DtoD") == 2 * 161
    assert count(launches, "miopenSp3AsmConv") == 0


def test_implicit_gemm_clears_transposes_runs_and_transposes_back():
    # Recorded: a 3 x 3 convolution from 128 to 128 channels with stride 2 on 8 x 8 maps.
    launches = launches_of(convolution(128, 128, 8, 3, stride=2), MI300X, "winograd")
    assert [launch.name.partition("_wt")[0] for launch in launches] == [
        "SubTensorOpWithScalar1d",
        "batched_transpose_32x32_half",
        "batched_transpose_16x32_half",
        "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt128x128x32",
        "batched_transpose_32x16_half",
    ]
    # Recorded grids in work-items: 524288 for the input, 131072 for the filter, 262144 for the
    # result.
    assert [launches[place].grid[0] for place in (1, 2, 4)] == [524288, 131072, 262144]


def test_nhwc_order_needs_no_transposes_and_no_winograd():
    plain = launches_of(convolution(64, 64, 8, 3), MI300X, "winograd")
    ordered = launches_of(convolution(64, 64, 8, 3, channels_last=True), MI300X, "winograd")
    assert [launch.name for launch in plain] == [
        "miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f2x3_stride1"
    ]
    assert len(ordered) == 2
    assert ordered[1].name.startswith("igemm_fwd_gtcx3_nhwc_fp16")


def test_an_input_in_the_filters_other_order_is_rearranged_first():
    plain = convolution(64, 64, 8, 3)
    swapped = replace(plain, inputs=(replace(plain.inputs[0], channels_last=True), plain.inputs[1]))
    rearranging, *rest = launches_of(swapped, MI300X, "winograd")
    assert rearranging.bytes_written == 256 * 64 * 8 * 8 * 2
    assert rest == list(launches_of(plain, MI300X, "winograd"))


@pytest.mark.parametrize(("dtype", "word"), [("bfloat16", "bf16"), ("float32", "fp32")])
def test_other_types_take_implicit_gemm_of_their_own(dtype, word):
    launches = launches_of(convolution(64, 64, 8, 3, dtype=dtype), MI300X, "winograd")
    assert count(launches, f"igemm_fwd_gtcx3_nhwc_{word}") == 1


def test_the_backward_pass_computes_what_its_mask_asks_for():
    shapes = [
        ((256, 64, 16, 16), "float16"),
        ((256, 3, 32, 32), "float16"),
        ((64, 3, 7, 7), "float16"),
    ]
    first_layer = operator(
        "aten::convolution_backward", *shapes, stride=(2, 2), output_mask=(False, True, False)
    )
    names = [launch.name for launch in launches_of(first_layer, MI300X, "implicit-gemm")]
    # Recorded: float32 sums that are cast, and no gradient of the images.
    assert names[0] == "SubTensorOpWithScalar1d"
    assert names[-2:] == ["SubTensorOpWithCastTensor1d", "batched_transpose_4x64_half"]
    assert not any("igemm_bwd" in name for name in names)


def test_convolution_flops_count_a_multiplication_and_an_addition():
    (shape,) = shapes_of(convolution(64, 256, 8, 1))
    assert shape.flops == 2 * 256 * 256 * 8 * 8 * 64
    assert shape.matrix == (256 * 64, 256, 64)
    assert solution_of(shape, "winograd") == "winograd f3x2_stride1"


def test_older_architectures_have_their_own_kernel_names():
    names = [
        launch.name
        for launch in launches_of(convolution(512, 512, 1, 3), device("MI250X"), "implicit-gemm")
    ]
    assert any(name.startswith("igemm_fwd_gtcx2_") for name in names)
    assert "_ISA90a_" in product(512, 512, 512, 1, "float32", "Ailk_Bljk", device("MI250X")).name


def test_the_optimizers_tensors_are_packed_as_torch_packs_them():
    # Three tensors of one chunk, two to a launch; then a tensor of 321 chunks against the limit of
    # 320 blocks.
    assert packed([10, 20, 30], 2) == [(2, 30), (1, 30)]
    assert packed([321 * 65536], 110) == [(320, 320 * 65536), (1, 65536)]


def test_the_optimizers_launches_have_the_recorded_numbers_of_blocks():
    operators = [
        each for each in operators_of_step(TrainConfig()) if each.name == "aten::_foreach_addcmul_"
    ]
    launches = launches_of(operators[0], MI300X, "winograd")
    assert [launch.grid[0] // 512 for launch in launches] == [51, 90, 204, 135]


@settings(max_examples=50)
@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=60), st.integers(30, 110))
def test_packing_loses_no_value_and_respects_the_limits(sizes, limit):
    launches = packed(sizes, limit)
    assert sum(values for _, values in launches) == sum(sizes)
    assert all(1 <= blocks <= 320 for blocks, _ in launches)


def test_copies_move_the_bytes_of_their_tensor():
    values = ((64, 64), "float32")
    (launch,) = launches_of(
        operator("aten::copy_", values, values, direction="DeviceToDevice"), MI300X, "winograd"
    )
    assert (launch.kind, launch.copy_bytes, launch.copy_direction) == (
        "copy",
        64 * 64 * 4,
        "DeviceToDevice",
    )
    (cast,) = launches_of(
        operator("aten::copy_", ((64, 64), "float16"), values), MI300X, "winograd"
    )
    assert cast.kind == "kernel"
    assert (cast.bytes_read, cast.bytes_written) == (64 * 64 * 4, 64 * 64 * 2)


def test_reading_a_number_back_copies_four_bytes():
    (launch,) = launches_of(
        operator("aten::_local_scalar_dense", ((), "float32")), MI300X, "winograd"
    )
    assert (launch.copy_bytes, launch.runtime_call) == (4, "hipMemcpyWithStream")


def test_a_collective_is_a_kernel_of_rccl():
    (launch,) = launches_of(
        operator("nccl:all_reduce", ((2431040,), "float32"), collective="allreduce"), MI300X, ""
    )
    assert (launch.kind, launch.collective) == ("collective", "allreduce")
    assert launch.bytes_read == 2431040 * 4
    assert launch.grid == (24 * 256, 1, 1)  # recorded: 24 blocks of 256


def test_elementwise_kernels_take_1024_values_to_a_block():
    # Recorded: 4096 blocks of 256 for [256, 64, 16, 16].
    values = ((256, 64, 16, 16), "float16")
    (launch,) = launches_of(operator("aten::add_", values, values), MI300X, "winograd")
    assert launch.grid == (4096 * 256, 1, 1)
    assert "CUDAFunctor_add<c10::Half>" in launch.name


def test_a_product_takes_the_largest_tile_that_fills_the_device():
    assert choose_tile(32768, 2048, 1, 304) == (256, 192, 64)  # recorded for this product
    assert choose_tile(256, 100, 1, 304) == (16, 32, 128)  # recorded for the classifier
    assert parallelism(304, 304) == 1
    assert parallelism(305, 304) == pytest.approx(305 / 608)


def test_tensors_without_values_and_host_work_launch_nothing():
    assert launches_of(operator("aten::add_", ((0, 4), "float32")), MI300X, "winograd") == ()
    assert (
        launches_of(operator("aten::view", ((4,), "float32"), host_only=True), MI300X, "winograd")
        == ()
    )


def test_an_operator_that_nobody_knows_is_refused_by_name():
    with pytest.raises(UserError, match="aten::made_up"):
        launches_of(operator("aten::made_up", ((4,), "float32")), MI300X, "winograd")


def test_a_device_without_rocm_is_refused():
    with pytest.raises(UserError, match="H100 does not run ROCm"):
        launches_of(operator("aten::relu", ((4,), "float32")), device("H100"), "winograd")


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(model="swinv2", precision="bfloat16"),
        TrainConfig(model="vit", compile=True),
        TrainConfig(channels_last=True, fused_optimizer=True),
        TrainConfig(pathology="unpinned-copies", batch_size=8),
    ],
    ids=["swinv2", "compiled", "fused", "unpinned"],
)
def test_every_operator_of_a_step_has_kernels_that_can_be_timed(config):
    launches = step_launches(config)
    assert len(launches) > 300
    for launch in launches:
        assert launch.cost_class in cost_classes()
        assert launch.name
        if launch.kind == "kernel":
            assert min(*launch.grid, *launch.workgroup) >= 1
            assert 0 < launch.parallelism <= 1


@settings(max_examples=60)
@given(
    st.sampled_from([1, 3, 64, 96, 768]),
    st.sampled_from([1, 64, 96, 768]),
    st.sampled_from([1, 2, 4, 16, 32]),
    st.sampled_from([1, 3, 16]),
    st.sampled_from([1, 2, 16]),
    st.integers(1, 300),
    st.sampled_from(["float16", "bfloat16", "float32"]),
    st.sampled_from(["implicit-gemm", "winograd"]),
)
def test_any_convolution_has_exactly_one_main_kernel_with_its_flops(
    c, k, size, width, stride, n, dtype, solutions
):
    each = convolution(c, k, size, width, stride, n, dtype)
    (shape,) = shapes_of(each)
    launches = launches_of(each, MI300X, solutions)
    assert sum(launch.flops for launch in launches) == pytest.approx(shape.flops)
    assert sum(launch.flops > 0 for launch in launches) == 1
    assert replace(shape, n=2 * n).flops == pytest.approx(2 * shape.flops)
