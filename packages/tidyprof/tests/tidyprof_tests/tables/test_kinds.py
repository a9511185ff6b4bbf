"""Kernels whose names tell that they are more than kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tidyprof.tables.codes import KIND_CODE, KINDS, is_like_communication, refined


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("__amd_rocclr_copyBuffer", "copy"),
        ("__amd_rocclr_fillBufferAligned.kd", "fill"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("void rccl_main_kernel", "collective"),
        (
            (
                "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16,"
                " 16>(c10::BFloat16*)"
            ),
            "collective",
        ),
        ("void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*)", "collective"),
        ("_ZN5aiter26cross_device_reduce_2stageIDF16bLi8ELb0EEEv", "collective"),
        (
            (
                "quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half,"
                " 8>, true>>"
            ),
            "collective",
        ),
        ("_Z22ncclDevKernel_Generic_424ncclDevKernelArgsStorageILm4096EE", "collective"),
        ("_Z22ncclDevKernel_Generic_424ncclDevKernelArgsStorageILm4096EE.kd", "collective"),
        ("_ZN7mscclpp12allreduce7E2EPv", "collective"),
        ("void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>", "collective"),
        ("EpCombineInterNodeV1Kernel_bf16_nop2p", "collective"),
        ("_ZN4mori3moe25EpDispatchIntraNodeKernelIfEEvNS0_1AE", "collective"),
        (
            "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*)",
            "collective",
        ),
        ("void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)", "collective"),
        ("_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvPv", "collective"),
        ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", "kernel"),
        ("persistent_all_to_all", "collective"),
        ("persistent_all_reduce_two_shot", "collective"),
        ("_Z9my_kernelP8ncclComm", "kernel"),
        ("my_kernel_for_nccl_tests", "kernel"),
        ("void at::native::reduce_kernel<512, 1>", "kernel"),
        ("at::native::copy", "kernel"),
    ],
)
def test_kernels_of_libraries_are_told_by_their_names(name, kind):
    as_kernel = np.array([KIND_CODE["kernel"], KIND_CODE["runtime"]], np.int8)
    found = refined(as_kernel, np.zeros(2, np.int32), [name])
    assert [KINDS[code] for code in found] == [kind, "runtime"]


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("void pplx::all_to_all::dispatchKernel<true>(int)", True),
        ("my_all2all_kernel", True),
        ("fusedAllReduceNorm", True),
        ("_ZN3foo13combineTokensEPv", True),
        ("fmha_fwd_splitkv_combine", False),
        ("void flash::flash_fwd_splitkv_combine_kernel<>()", False),
        ("void at::native::elementwise_kernel<128, 4, dispatch_functor>(int)", False),
        ("_combined_routing_compute", False),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x256x64", False),
        ("triton_poi_fused_add_0", False),
    ],
)
def test_names_like_communication(name, alike):
    assert is_like_communication(name) == alike
