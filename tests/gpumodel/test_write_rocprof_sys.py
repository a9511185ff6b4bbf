"""Output folders of rocprof-sys: the trace, the tables and the descriptions tell the run's own
story.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from gpumodel import writers
from gpumodel.writers.rocprof_sys.tables import (
    LONGEST_LABEL,
    SAMPLED_TIME,
    WALL_CLOCK,
    Node,
    write_table,
)
from tests.gpumodel.handmade import START_NS, STEP_NS, STEPS, RankBuilder, run_of, small_run
from tidyprof import read, read_rocprof_sys


def test_files_are_named_as_the_tool_names_them(tmp_path):
    run = small_run()
    paths = writers.write("rocprof-sys", run, tmp_path, rank=0, profile=True)
    # 1550151.853 s after boot plus 1767189312.123 s is 2026-01-18 12:31:03 UTC.
    folder = tmp_path / "rocprofsys-python-output" / "2026-01-18_12.31"
    names = [
        f"{stem}-4200.{ending}"
        for stem in ("wall_clock", "sampling_wall_clock", "sampling_percent", "trip_count")
        for ending in ("json", "txt")
    ]
    names = [
        "perfetto-trace-4200.proto",
        *names,
        "metadata-4200.json",
        "functions-4200.json",
        "modelled.json",
    ]
    assert paths == [folder / name for name in names]
    assert all(path.is_file() for path in paths)


def test_ranges_calls_and_facts_of_the_run(tmp_path):
    run = small_run(roctx=True)
    writers.write("rocprof-sys", run, tmp_path, profile=True)
    profile = read(tmp_path / "rocprofsys-python-output")
    table, meta = profile.meta["tables"]["wall_clock"], profile.meta
    for rank in run.ranks:
        named = profile.events.query(
            f"source_category == 'rocm_marker_api' and process == {rank.process_id}"
        )
        assert sorted(named["name"]) == sorted(rank.annotations["name"])
        own = (
            table[table["process"] == rank.process_id].groupby("label")[["count", "total_ns"]].sum()
        )
        calls = rank.calls.groupby("name")["duration_ns"].agg(["size", "sum"])
        assert own.loc[calls.index].to_numpy().tolist() == calls.to_numpy().tolist()
    assert (meta["tool"], meta["tool_version"], meta["rocm"]) == ("rocprof-sys", "1.5.0", "7.12.0")
    assert meta["launched"] == "01/18/26 12:31"
    dispatches = profile.events["dispatch_id"].dropna().tolist()
    # Of the 7 launches of a step the first is a copy from the host, which is no dispatch.
    assert sorted(dispatches) == sorted(
        2 * [7 * step + place for step in range(STEPS) for place in range(2, 8)]
    )


def test_frames_of_a_sample_last_from_the_sample_before_it(tmp_path):
    run = small_run()
    writers.write("rocprof-sys", run, tmp_path, rank=0)
    samples = read(tmp_path / "rocprofsys-python-output").events.query("kind == 'sample'")
    # Samples are taken 0.5 ms after each step begins; the first stands for the time since the
    # program began.
    expected = [(START_NS, 500_000)] + [
        (START_NS + (step + 1) * STEP_NS - 500_000, STEP_NS) for step in range(STEPS - 1)
    ]
    assert samples.query("depth == 0")[["start_ns", "duration_ns"]].to_numpy().tolist() == [
        list(e) for e in expected
    ]
    assert samples["name"].astype(str).tolist() == ["<module>", "train", "Tensor.backward"] * STEPS
    assert samples["sample"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_without_a_profile_the_samples_are_in_the_trace_only(tmp_path):
    paths = writers.write("rocprof-sys", small_run(), tmp_path, rank=0)
    assert not [path.name for path in paths if path.suffix == ".txt"]
    profile = read(tmp_path / "rocprofsys-python-output")
    assert (profile.events["kind"] == "sample").any()


def test_tables_of_samples_add_up_the_trace(tmp_path):
    run = small_run()
    writers.write("rocprof-sys", run, tmp_path, rank=0, profile=True)
    tables = read(tmp_path / "rocprofsys-python-output").meta["tables"]
    tree = tables["sampling_wall_clock"]
    assert tree["label"].tolist() == ["<module>", "train", "Tensor.backward"]
    # 0.5 ms and twice 1 ms in three samples.
    assert tree["total_ns"].tolist() == [2_500_000] * 3
    assert tree["self_ns"].tolist() == [0, 0, 2_500_000]
    assert (tree["min_ns"][0], tree["max_ns"][0]) == (500_000, 1_000_000)
    assert tree["std_ns"][0] == pytest.approx(math.sqrt(1 / 12) * 1e6)
    assert tables["trip_count"]["total"].tolist() == [3.0] * 3
    assert tables["sampling_percent"]["total"].tolist() == pytest.approx([100 / 3] * 3)


def test_regions_lie_below_what_encloses_them_and_kernels_stand_apart(tmp_path):
    run = small_run(roctx=True)
    writers.write("rocprof-sys", run, tmp_path, rank=0, profile=True)
    table = read(tmp_path / "rocprofsys-python-output").meta["tables"]["wall_clock"]
    by_label = table.set_index("label")
    assert by_label.loc["python", "total_ns"] == run.end_ns - run.start_ns
    forward = table[table["label"] == "forward"].iloc[0]
    assert table["label"][forward["parent"]] == "ProfilerStep#0"
    # forward of 200005 ns holds two launches of 5011 and 4019 ns.
    assert forward["self_ns"] == 200_005 - 5_011 - 4_019
    gemm = by_label.loc["Cijk_Ailk_Bljk_SB_MT64x64x32_MI16x16x4x1_SN"]
    assert (gemm["depth"], gemm["count"], gemm["total_ns"], gemm["thread"]) == (0, 3, 3 * 20_001, 0)
    collective = by_label.loc["ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"]
    assert (collective["total_ns"], collective["thread"]) == (3 * 110_027, 1)


def test_text_tables_say_the_same_as_json(tmp_path):
    run = small_run(roctx=True)
    paths = writers.write("rocprof-sys", run, tmp_path, rank=0, profile=True)
    before = read(paths[0].parent).meta["tables"]
    for path in paths:
        if path.suffix == ".json":
            path.unlink()
    after = read_rocprof_sys(paths[0].parent)
    for metric, table in before.items():
        text = after.meta["tables"][metric]
        assert text["count"].tolist() == table["count"].tolist()
        assert text["depth"].tolist() == table["depth"].tolist()
        column = "total_ns" if "total_ns" in table else "total"
        # Six decimals of a second are a microsecond, three decimals of a percent.
        limit = 500 if column == "total_ns" else 5e-4
        assert (text[column] - table[column]).abs().max() <= limit
    assert any("cut short" in warning for warning in after.meta["warnings"])


def test_long_labels_are_cut_in_text_by_bytes(tmp_path):
    node = Node("µ" * 200, 0)
    node.add(1_000)
    text = write_table(WALL_CLOCK, [node], 1, tmp_path / "wall_clock-1")[1].read_text()
    row = text.splitlines()[-2].encode()
    label = row[2 : 2 + LONGEST_LABEL].decode()
    assert label.rstrip().endswith("...")
    assert label.startswith("|0>>> µµµ")
    assert len({len(line.encode()) for line in text.splitlines()}) == 1


def test_deviation_is_that_of_the_sample():
    node = Node("f", 0)
    for value in (2, 4, 4, 4, 5, 5, 7, 9):
        node.add(value)
    # Squares of the distances from the mean 5 add up to 32, over 7.
    assert node.deviation == pytest.approx(math.sqrt(32 / 7))
    assert (node.count, node.total, node.shortest, node.longest) == (8, 40, 2, 9)


def test_deep_trees_keep_their_order(tmp_path):
    root = Node("a", 0)
    for path in (("b", "c"), ("d",), ("b", "e")):
        node = root
        node.add(10)
        for label in path:
            node = node.child(label)
            node.add(10)
    document = json.loads(write_table(SAMPLED_TIME, [root], 1, tmp_path / "s-1")[0].read_text())
    graph = document["timemory"]["sampling_wall_clock"]["ranks"][0]["graph"]
    assert [node["prefix"] for node in graph] == [
        "|0>>> a", "|0>>> |_b", "|0>>>   |_c", "|0>>>   |_e", "|0>>> |_d",
    ]  # fmt: skip
    assert [node["entry"]["laps"] for node in graph] == [3, 2, 1, 1, 1]


def test_telemetry_has_the_tools_names_and_units(tmp_path):
    run = small_run()
    writers.write("rocprof-sys", run, tmp_path)
    counters = read(tmp_path / "rocprofsys-python-output").counters
    own = counters[counters["device"] == 1].set_index("name")
    assert own.loc["GPU [1] GFX Busy (S)", "value"].tolist() == [40.0, 41.0, 42.0]
    assert own.loc["GPU [1] Power (S)", "unit"].tolist() == ["W"] * 3
    assert own.loc["GPU [1] Memory Usage (S)", "value"].tolist() == [
        (2**30 + step) / 1e6 for step in range(3)
    ]
    # This release keeps no track of clocks.
    assert not own.index.astype(str).str.contains("lock").any()


def test_without_trace_only_tables_are_left(tmp_path):
    run = small_run()
    paths = writers.write("rocprof-sys", run, tmp_path, rank=0, trace=False, profile=True)
    assert not any(path.suffix == ".proto" for path in paths)
    profile = read_rocprof_sys(paths[0].parent)
    assert len(profile.events) == 0
    assert "wall_clock" in profile.meta["tables"]


def test_metadata_lists_the_files_and_that_stacks_were_sampled(tmp_path):
    run = small_run()
    paths = writers.write("rocprof-sys", run, tmp_path, rank=0)
    metadata = json.loads(
        next(path for path in paths if path.name.startswith("metadata")).read_text()
    )
    content = metadata["rocprofiler-systems"]["metadata"]
    listed = {
        path
        for entries in content["output"].values()
        for entry in entries
        for path in entry["value"]
    }
    assert listed == {
        str(path)
        for path in paths
        if path.suffix in (".txt", ".proto") or "sampling" in path.name or "trip" in path.name
    }
    assert content["settings"]["ROCPROFSYS_USE_SAMPLING"]["value"] is True


def test_a_run_without_stacks_has_no_tables_of_samples(tmp_path):
    run = small_run()
    bare = replace(run.ranks[0], samples=run.ranks[0].samples.iloc[:0])
    paths = writers.write("rocprof-sys", replace(run, ranks=(bare,)), tmp_path, profile=True)
    assert not any("sampling" in path.name or "trip_count" in path.name for path in paths)


def test_regions_of_other_threads_have_their_own_trees(tmp_path):
    builder = RankBuilder(0, 1)
    for thread, start in ((builder.process_id, 10), (builder.autograd_thread_id, 15)):
        call = builder.call("hipLaunchKernel", start, 100, thread=thread)
        builder.work("kernel", f"k{start}", call, start + 50, 7, grid_x=64, workgroup_x=64)
    run = run_of(small_run().workload, (builder.finish(),), 1_000)
    writers.write("rocprof-sys", run, tmp_path, profile=True)
    table = read(tmp_path / "rocprofsys-python-output").meta["tables"]["wall_clock"]
    shown = table[["thread", "label", "depth"]].to_numpy().tolist()
    assert shown == [
        [0, "python", 0],
        [0, "hipLaunchKernel", 1],
        [0, "k10", 0],
        [1, "hipLaunchKernel", 0],
        [1, "k15", 0],
    ]
