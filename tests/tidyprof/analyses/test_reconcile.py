"""Several tools' view of one run: each rule on a small example, and two files of one recording."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.tidyprof.analyses.test_analyses import ORIGIN, event, profile_of
from tidyprof.analyses.reconcile import AGREE, RECONCILIATION_COLUMNS, reconcile
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof.tables.contract import Origin, Profile


def kernels(**calls: tuple[int, int]) -> list[dict]:
    """name=(calls, duration of each): events one after the other."""
    return [
        event("kernel", name, 1000 * place, 1000 * place + duration)
        for name, (count, duration) in calls.items()
        for place in range(count)
    ]


def reasons(**profiles: Profile) -> dict[str, str]:
    return reconcile(profiles).set_index("short_name")["reason"].to_dict()


def test_side_by_side():
    first = profile_of(*kernels(gemm=(2, 100), relu=(4, 10)))
    second = profile_of(*kernels(gemm=(2, 100), norm=(1, 7)))
    table = reconcile({"torch": first, "rocprofv3": second})
    assert table["short_name"].tolist() == ["gemm", "relu", "norm"]
    assert table["category"].tolist() == ["GEMM", "other", "other"]
    assert table["calls_torch"].tolist() == [2, 4, pd.NA]
    assert table["total_ns_rocprofv3"].tolist() == [200, pd.NA, 7]
    assert table[["calls_difference", "difference_ns"]].to_numpy().tolist() == [
        [0, 0],
        [4, 40],
        [1, 7],
    ]
    assert table.attrs["tools"] == ["torch", "rocprofv3"]
    assert table.attrs["origin"] == str(ORIGIN)
    fixed = [
        column
        for column in table.columns
        if not column.startswith(("calls_t", "calls_r", "total_ns_"))
    ]
    assert fixed == list(RECONCILIATION_COLUMNS)


def test_names_match_across_what_tools_add():
    first = profile_of(event("kernel", "void gemm<float>(float*)", 0, 5))
    second = profile_of(event("kernel", "void gemm<float>(float*) [clone .kd]", 0, 5))
    table = reconcile([first, second])
    assert table["reason"].tolist() == [AGREE]
    assert table.columns[2:4].tolist() == ["calls_unnamed tool", "calls_unnamed tool (2)"]


def test_copies_counted_as_kernels():
    torch = profile_of(
        event("copy", "Memcpy DtoD (Device -> Device)", 0, 5), event("kernel", "gemm", 10, 20)
    )
    rocprof = profile_of(
        event("kernel", "__amd_rocclr_copyBuffer", 0, 5), event("kernel", "gemm", 10, 20)
    )
    found = reasons(torch=torch, rocprofv3=rocprof)
    assert found["gemm"] == AGREE
    assert found["__amd_rocclr_copyBuffer"] == (
        "rocprofv3 lists this copy as kernel, torch has copies as 'Memcpy DtoD' (1 calls)"
    )
    as_copy = profile_of(
        event("copy", "__amd_rocclr_copyBuffer", 0, 5), event("kernel", "gemm", 10, 20)
    )
    assert reasons(sdk=as_copy, rocprofv3=rocprof)["__amd_rocclr_copyBuffer"] == (
        "sdk counts it as copy, rocprofv3 as kernel"
    )


def test_fills_and_copies_that_a_tool_leaves_out():
    torch = profile_of(event("fill", "Memset (Device)", 0, 5), event("kernel", "gemm", 10, 20))
    only_kernels = profile_of(event("kernel", "gemm", 10, 20))
    assert reasons(torch=torch, rocprofv3=only_kernels)["Memset"] == (
        "rocprofv3 does not list fills; torch has them as fill"
    )


def test_another_window():
    steps_3 = profile_of(*kernels(gemm=(3, 100), relu=(6, 10), norm=(9, 5), loss=(3, 2)))
    steps_21 = profile_of(*kernels(gemm=(21, 100), relu=(42, 10), norm=(63, 5), loss=(20, 2)))
    found = reasons(torch=steps_3, rocprofv3=steps_21)
    for name in ("gemm", "relu", "norm"):
        assert found[name].startswith(
            "rocprofv3 has 7 times as many calls of most kernels as torch: another window"
        )
    assert found["loss"].startswith("torch has 17 calls fewer than rocprofv3")


def test_lost_events():
    found = reasons(
        a=profile_of(*kernels(gemm=(5, 100), relu=(4, 9), norm=(4, 9))),
        b=profile_of(*kernels(gemm=(3, 100), relu=(4, 9), norm=(4, 9))),
    )
    assert found["gemm"].startswith("b has 2 calls fewer than a: events lost")
    assert found["relu"] == AGREE


def test_launch_calls_summed_instead_of_gpu_time():
    """As RPD's old view ktop did: 37 us on the device and 8390 us for the launch call."""
    true = profile_of(
        event("runtime", "hipLaunchKernel", 0, 8390, correlation_id=1),
        event("kernel", "gemm", 8400, 8437, correlation_id=1),
    )
    ktop = profile_of(event("kernel", "gemm", 0, 8390))
    expected = "ktop adds up the launch calls on the host, not the time on the GPU"
    assert reasons(top=true, ktop=ktop)["gemm"] == expected
    assert reasons(ktop=ktop, top=true)["gemm"] == expected


def test_of_calls_that_begin_together_the_outer_one_launches():
    """Libraries that a call passes through share its correlation id."""
    events = [
        event("runtime", "hsa_queue", 0, 10, correlation_id=1),
        event("runtime", "hipLaunchKernel", 0, 8390, correlation_id=1),
        event("kernel", "gemm", 8400, 8437, correlation_id=1),
    ]
    for order in (events, [events[1], events[0], events[2]]):
        assert reasons(top=profile_of(*order), ktop=profile_of(event("kernel", "gemm", 0, 8390)))[
            "gemm"
        ] == ("ktop adds up the launch calls on the host, not the time on the GPU")


def test_same_calls_other_durations():
    found = reasons(a=profile_of(*kernels(gemm=(2, 100))), b=profile_of(*kernels(gemm=(2, 110))))
    assert found["gemm"].startswith("same calls, other durations")
    found = reasons(a=profile_of(*kernels(gemm=(2, 1000))), b=profile_of(*kernels(gemm=(2, 1009))))
    assert found["gemm"] == AGREE, "within one per cent"


def test_another_name():
    found = reasons(
        a=profile_of(*kernels(gemm=(2, 100), rccl_main_kernel=(7, 50))),
        b=profile_of(*kernels(gemm=(2, 100), ncclDevKernel=(7, 52), ncclOther=(7, 99))),
    )
    assert "perhaps calls it 'ncclDevKernel'" in found["rccl_main_kernel"]
    assert found["ncclOther"].startswith("not in a: another name")


def test_a_kind_that_was_not_recorded():
    a = profile_of(event("collective", "nccl", 0, 5), event("kernel", "gemm", 10, 20))
    b = profile_of(event("kernel", "gemm", 10, 20))
    assert reasons(a=a, b=b)["nccl"] == "b recorded no collective at all"


def test_three_tools_tell_every_difference():
    a, b = profile_of(*kernels(gemm=(2, 100))), profile_of(*kernels(gemm=(2, 150)))
    found = reasons(a=a, b=b, c=profile_of(*kernels(relu=(1, 1))))["gemm"]
    assert "same calls, other durations" in found
    assert "not in c" in found


def test_origins_of_all_tools():
    other = profile_of(*kernels(gemm=(1, 1)), origin=Origin("measured", "here"))
    table = reconcile({"a": profile_of(*kernels(gemm=(1, 1))), "b": other})
    assert table.attrs["origin"] == "a modelled: by hand; b measured: here"


def test_one_profile_is_not_enough():
    profile = profile_of(*kernels(gemm=(1, 1)))
    for wrong in (profile, [profile], {"a": profile}):
        with pytest.raises(ValueError, match="at least two"):
            reconcile(wrong)


def test_empty_recordings():
    profile = profile_of(*kernels(gemm=(1, 1)))
    empty = Profile(profile.events.iloc[:0], meta={"origin": ORIGIN})
    assert not len(reconcile([empty, empty]))
    assert reasons(a=profile, b=empty)["gemm"] == "b recorded no kernel at all"


def test_a_filtered_file_of_the_same_run(recordings):
    folder = recordings / "torch-mi300-ddp-4ranks-fused"
    everything = read_torch_trace(folder / "merged_all_events.json.gz")
    only_collectives = read_torch_trace(folder / "merged_nccl_only.json.gz")
    table = reconcile({"all": everything, "filtered": only_collectives}).set_index("short_name")
    nccl = table.loc["ncclDevKernel_Generic"]
    assert (nccl["calls_all"], nccl["calls_filtered"], nccl["reason"]) == (84, 84, AGREE)
    rest = table.drop(index="ncclDevKernel_Generic")
    assert (rest["reason"] != AGREE).all()
    assert rest["calls_filtered"].isna().all()
    assert table["calls_all"].sum() == len(everything.device_events)


def test_processes_without_a_rank_may_use_the_same_correlation_ids():
    """Processes 1 and 2 launch a kernel each; the calls take 7 and 90. One tool adds up those of
    process 2.
    """
    rows = []
    for process, length in ((1, 7), (2, 90)):
        own = {"rank": None, "process": process, "correlation_id": 5}
        rows.append(event("runtime", "hipLaunchKernel", process, process + length, **own))
        rows.append(
            event("kernel", f"of {process}", 200, 240, device=process, launch_ns=process, **own)
        )
    other = profile_of(event("kernel", "of 1", 0, 40), event("kernel", "of 2", 0, 90))
    found = reasons(sdk=profile_of(*rows), other=other)
    assert found == {
        "of 1": AGREE,
        "of 2": "other adds up the launch calls on the host, not the time on the GPU",
    }
