"""Kernels whose names tell that they are more than kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tidyprof.tables.codes import KIND_CODE, KINDS, refined


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("__amd_rocclr_copyBuffer", "copy"),
        ("__amd_rocclr_fillBufferAligned.kd", "fill"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("void rccl_main_kernel", "collective"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "collective"),
        ("void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*)", "collective"),
        ("_ZN5aiter26cross_device_reduce_2stageIDF16bLi8ELb0EEEv", "collective"),
        ("quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 8>, true>>", "collective"),
        ("my_kernel_for_nccl_tests", "kernel"),
        ("void at::native::reduce_kernel<512, 1>", "kernel"),
        ("at::native::copy", "kernel"),
    ],
)
def test_kernels_of_libraries_are_told_by_their_names(name, kind):
    as_kernel = np.array([KIND_CODE["kernel"], KIND_CODE["runtime"]], np.int8)
    found = refined(as_kernel, np.zeros(2, np.int32), [name])
    assert [KINDS[code] for code in found] == [kind, "runtime"]
