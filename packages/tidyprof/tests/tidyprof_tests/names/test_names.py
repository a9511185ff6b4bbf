"""Short names and categories: known kernels, every kernel in the recordings, and any text at
all.
"""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidyprof.names.short_names import (
    CATEGORIES,
    MAXIMUM_LENGTH,
    category,
    plain_name,
    short_name,
    unique_short_names,
)
from tidyprof.readers.torch.reader import read_torch_trace

MULTIPLY = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float,"
    " float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int,"
    " at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>"
    " >, std::array<char*, 3ul>)"
)
COPY = (
    "void at::native::elementwise_kernel_manual_unroll<128, 4,"
    " at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#3}::operator()()"
    " const::{lambda()#7}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&, int"
    " const&)::{lambda(int)#1}>(int, int)"
)
SUM = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::Half,"
    " at::native::func_wrapper_t<c10::Half, at::native::sum_functor<c10::Half, float,"
    " float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4,"
    " 4> >(int) [clone .kd]"
)
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous"
    " namespace)::TensorListMetadata<2>, at::native::(anonymous"
    " namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>,"
    " float>(at::native::(anonymous namespace)::TensorListMetadata<2>, float)"
)
MANGLED_ADD = (
    "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c108BFloat16EEE"
    "St5arrayIPcLm3EEEEviT0_T1_.kd"
)
FLASH = (
    "_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelINS_26FmhaFwdTilePartitioner_HBSI"
    "NS_13TileFmhaShapeE"
)
IGEMM = (
    "igemm_bwd_gtcx3_nhwc_fp16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x2x1_1x4x1x64"
    "_tb1x8x1x2_1x4x1x64_mh_gkgs"
)
CUTLASS = (
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>"
    "(cutlass_80_tensorop::Params)"
)

KNOWN = [
    (
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN",
        "GEMM TN bf16 MT256x192x64",
        "GEMM",
    ),
    (
        "Cijk_Ailk_Bjlk_HHS_BH_MT64x32x32_MI16x16x16x1_SN_GSU4_SK0",
        "GEMM NT fp16 MT64x32x32",
        "GEMM",
    ),
    ("Cijk_Ailk_Bljk_SB_MT128x64x16_MI32x32x2x1_SN_GSU1", "GEMM NN fp32 MT128x64x16", "GEMM"),
    ("Cijk_Ailk_Bljk_HBH_MT64x64x16_SN", "GEMM NN fp16 MT64x64x16", "GEMM"),
    (
        "Cijk_Alik_Bljk_F8HS_BH_BiasSH_AS_MT64x16x512_MI16x16x1_SK3",
        "GEMM TN fp8-fp16 MT64x16x512 stream-K",
        "GEMM",
    ),
    ("MIOpenBatchNormBwdSpatial", "MIOpenBatchNormBwdSpatial", "normalization"),
    ("SubTensorOpWithScalar1d", "SubTensorOpWithScalar1d", "elementwise"),
    (
        "miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f2x3_stride1",
        "conv Winograd fp16 f2x3 stride1",
        "convolution",
    ),
    (IGEMM, "conv bwd igemm nhwc fp16 bt128x128x32 ex1 split-K", "convolution"),
    ("batched_transpose_32x32_half", "batched_transpose_32x32_half", "copy"),
    (FLASH, "ck_tile FmhaFwdKernel", "attention"),
    (
        "triton_poi_fused__unsafe_view_mul_silu_2",
        "triton_poi_fused__unsafe_view_mul_silu_2",
        "elementwise",
    ),
    (
        "triton_red_fused_add_mean_mul_pow_rsqrt_0",
        "triton_red_fused_add_mean_mul_pow_rsqrt_0",
        "reduction",
    ),
    (MULTIPLY, "elementwise mul fp32 vec4", "elementwise"),
    (COPY, "elementwise direct_copy fp32 unrolled", "copy"),
    (SUM, "reduce sum fp16 512,1", "reduction"),
    (FOREACH, "multi_tensor BinaryOpListAlpha plus fp32", "optimizer"),
    (MANGLED_ADD, "elementwise add bf16 vec8", "elementwise"),
    (
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic",
        "collective",
    ),
    ("rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)", "rccl_main_kernel", "collective"),
    ("__amd_rocclr_copyBuffer.kd", "__amd_rocclr_copyBuffer", "copy"),
    ("__amd_rocclr_fillBufferAligned", "__amd_rocclr_fillBufferAligned", "copy"),
    ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD pinned", "copy"),
    ("vecCopy(double*, double*, double*, int, int) [clone .kd]", "vecCopy", "other"),
    (CUTLASS, "cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4", "GEMM"),
    ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn", "GEMM"),
    ("nvjet_hsh_64x8_64x16_2x1_v_bz_TNT", "nvjet_hsh_64x8_64x16_2x1_v_bz_TNT", "GEMM"),
]


@pytest.mark.parametrize(("name", "short", "kind"), KNOWN, ids=[short for _, short, _ in KNOWN])
def test_known_kernels(name, short, kind):
    assert short_name(name) == short
    assert category(name, "kernel") == kind


@pytest.mark.parametrize(
    "name",
    [
        "aten::convolution_backward",
        "autograd::engine::evaluate_function: AddBackward0",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"[:60],
        "train.py(12): main",
        "ProfilerStep#9",
        "hipLaunchKernel",
        "PyTorch Profiler (0)",
    ],
)
def test_what_is_no_kernel_stays_as_it_is(name):
    assert short_name(name) == name


def test_kinds_of_the_device_and_of_the_host():
    assert category("anything", "collective") == "collective"
    assert category("anything", "copy") == category("anything", "fill") == "copy"
    assert category("aten::conv2d", "operator") == "other"


def test_an_index_lambda_is_not_taken_for_the_data_type():
    functor = (
        "at::native::AUnaryFunctor<bool, bool, bool,"
        " at::native::binary_internal::MulFunctor<bool> >"
    )
    name = (
        f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{functor}"
        " >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"
    )
    assert short_name(name) == "elementwise mul scalar bool"


def test_names_that_shorten_alike_are_kept_apart_and_stay_the_same_in_other_sets():
    first, second = (
        f"Cijk_Alik_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_GLVWA{width}" for width in (2, 4)
    )
    assert short_name(first) == short_name(second)
    both = unique_short_names([first, second])
    more = unique_short_names([second, "other", first])
    assert len(set(both.values())) == 2
    assert both[first] == more[first]
    assert unique_short_names([first]) == {first: short_name(first)}


def test_a_long_name_keeps_both_ends():
    name = "triton_poi_fused_" + "add_mul_" * 20 + "17"
    assert short_name(name).startswith("triton_poi_fused_add")
    assert "17~" in short_name(name)
    assert short_name(name) != short_name(name.replace("17", "18"))


def test_a_line_break_inside_a_name_is_no_part_of_it():
    assert plain_name("block_reduce_kerne\nl [clone .kd]") == "block_reduce_kernel"


@pytest.fixture(scope="session")
def recorded_names(recordings) -> dict[str, list[str]]:
    """Kernel names by recording: torch traces, rocprofv3 CSV and JSON, rocprof-compute, rpd."""
    found: dict[str, set[str]] = {}
    for trace in sorted(recordings.glob("torch-*/*.json*")):
        events = read_torch_trace(trace).device_events
        found[trace.name] = set(events["name"].astype(str))
    for table in sorted(recordings.glob("rocprof*/**/*.csv")):
        with table.open(newline="") as file:
            rows = csv.DictReader(file)
            columns = {"Kernel_Name", "KernelName"} & set(rows.fieldnames or [])
            if columns:
                column = columns.pop()
                found[str(table.relative_to(recordings))] = {
                    row[column] for row in rows if row[column]
                }
    for packed in recordings.glob("rocprofv3-json-*/*.json.gz"):
        tool = json.loads(gzip.decompress(packed.read_bytes()))["rocprofiler-sdk-tool"]
        symbols = sorted(
            {symbol["formatted_kernel_name"] for part in tool for symbol in part["kernel_symbols"]}
        )
        mangled = sorted(
            {symbol["kernel_name"] for part in tool for symbol in part["kernel_symbols"]}
        )
        found[packed.name] = set(symbols[::3]) | set(mangled[::7])
    for database in recordings.glob("rpd-*/*.rpd"):
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        query = (
            "select distinct string from rocpd_op join rocpd_string on rocpd_string.id ="
            " description_id"
        )
        found[database.name] = {name for (name,) in connection.execute(query) if name}
    assert len(found) > 30
    return {source: sorted(names) for source, names in found.items()}


def test_every_recorded_kernel(recorded_names):
    total = 0
    for source, names in recorded_names.items():
        total += len(names)
        short = unique_short_names(names)
        assert len(set(short.values())) == len(names), f"two kernels of {source} got one name"
        for name, text in short.items():
            assert 0 < len(text) <= MAXIMUM_LENGTH, name
            assert not set(text) & set("<>{}\n\r\t"), name
            assert short_name(short_name(name)) == short_name(name)
    assert total > 5000, "the recordings hold many thousand names"


def test_categories_of_recorded_kernels(recorded_names):
    distinct = {
        name
        for source, names in recorded_names.items()
        if source.endswith("json.gz")
        for name in names
    }
    found = {name: category(name, "kernel") for name in distinct}
    assert set(found.values()) <= set(CATEGORIES)
    assert {"GEMM", "convolution", "normalization", "elementwise", "reduction"} <= set(
        found.values()
    )
    for name, kind in found.items():
        if name.startswith("Cijk_"):
            assert kind == "GEMM", name
        if "nccl" in name:
            assert kind == "collective", name
        if name.startswith("igemm_"):
            assert kind == "convolution", name


CODE = st.text(
    alphabet=string.ascii_letters + string.digits + "_:<>(){}[],*&# .~\n\x00$é😀-", max_size=300
)
STARTS = st.sampled_from(
    ["", "_ZN", "_Z", "Cijk_", "void at::native::", "igemm_", "miopenSp3AsmConv_", "Memcpy "]
)


@settings(deadline=None)
@given(STARTS, CODE | st.text(max_size=200))
@example("", "<" * 200)
@example("_ZN", "9999999999999999")
@example("_ZN", "2at6native29vectorized_elementwise_kernelILi2ENS0_11")
@example("Cijk_", "MT1x_PostGSU")
@example("", ".kd" * 50)
def test_any_text(start, rest):
    name = start + rest
    text = short_name(name)
    assert text == short_name(name)
    assert 0 < len(text) <= MAXIMUM_LENGTH
    assert not set(text) & set("<>{}\n\r\t\x00")
    assert category(name, "kernel") in CATEGORIES


@settings(deadline=None)
@given(st.lists(CODE, max_size=30))
def test_any_set_of_names_becomes_unique(names):
    short = unique_short_names(names)
    assert len(set(short.values())) == len(set(names))
    assert all(len(text) <= MAXIMUM_LENGTH for text in short.values())


@pytest.mark.parametrize(
    "unit", ["<", "a", "a::b<c, ", "_cuda", ".kd", " [clone .kd]", "(", "9a", "I", "L", "T_"]
)
@pytest.mark.parametrize("start", ["", "_ZN4name", "Cijk_A_B_C_MT1x1_", "void f<"])
def test_a_name_of_hundred_kilobytes(unit, start):
    name = start + unit * (100_000 // len(unit))
    assert 0 < len(short_name(name)) <= MAXIMUM_LENGTH
    assert category(name, "kernel") in CATEGORIES
