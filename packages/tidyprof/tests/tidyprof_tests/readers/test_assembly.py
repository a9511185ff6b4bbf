"""Assembly for AMD GPUs: what Triton wrote for lesson 16, what is written here, what is none; and
`tidyprof isa`.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
from pathlib import Path

import msgspec
import pandas as pd
import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof_tests.conftest import REPOSITORY

COMPILED = REPOSITORY / "lessons/16_compiler/compiled"
FILES = sorted(COMPILED.glob("*/*/*.amdgcn.gz"))


def kernel(name: str = "k", code: str = "", **stated: object) -> tuple[str, str]:
    """The code and the metadata of one kernel, as LLVM writes them."""
    numbers = {
        "agpr_count": 0,
        "group_segment_fixed_size": 0,
        "name": name,
        "private_segment_fixed_size": 0,
    }
    numbers |= {
        "sgpr_count": 16,
        "sgpr_spill_count": 0,
        "vgpr_count": 32,
        "vgpr_spill_count": 0,
        "wavefront_size": 64,
    }
    lines = [f"    .{key}: {value}" for key, value in (numbers | stated).items()]
    return f"{name}:\n{code}\n.Lfunc_end_{name}:\n\t.size\t{name}, 8\n", "\n".join(
        ["  -" + lines[0][3:], *lines[1:]]
    )


def write(path: Path, *kernels: tuple[str, str], target: str = "gfx942", **asked: object) -> Path:
    """A file with these kernels, and Triton's JSON beside it where something is `asked`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code, metadata = ("\n".join(parts) for parts in zip(*kernels, strict=True))
    head = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{target}"\n'
    path.write_text(
        f"{head}{code}\t.amdgpu_metadata\n---\namdhsa.kernels:\n{metadata}\n...\n"
        "\t.end_amdgpu_metadata\n"
    )
    if asked:
        path.with_suffix(".json").write_text(json.dumps(asked))
    return path


def read(path: Path) -> pd.DataFrame:
    kernels = tidyprof.read_assembly(path)
    return kernels.join(tidyprof.occupancy(kernels))


# The reader


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parts[-3]}-{file.parts[-2]}")
def test_waves_by_registers_are_those_that_llvm_states(file: Path) -> None:
    text = gzip.decompress(file.read_bytes()).decode()
    (row,) = read(file).itertuples()
    assert row.waves_by_registers == int(re.search(r"^; Occupancy: (\d+)$", text, re.MULTILINE)[1])
    assert row.vgprs == int(re.search(r"^; TotalNumVgprs: (\d+)$", text, re.MULTILINE)[1])
    assert row.scratch_bytes == int(re.search(r"^; ScratchSize: (\d+)$", text, re.MULTILINE)[1])
    assert row.spill_instructions == len(re.findall("Folded (?:Spill|Reload)", text))
    assert str(tidyprof.read_assembly(file).attrs["origin"]) == f"compiled: Triton {file.parts[-3]}"


def test_every_kernel_of_a_file_has_its_own_counts(tmp_path: Path) -> None:
    first = (
        "\tv_mfma_f32_32x32x8_bf16 a, b, c\n\tglobal_load_dwordx4 v\n\tbuffer_load_ushort"
        " v\n\tglobal_load_lds_dword v"
    )
    second = "\tscratch_store_dword off, v1\n\tflat_load_b64 v\n"
    second += "\tbuffer_load_dword v1, off, s[0:3], 0 ; 4-byte Folded Reload"  # as on gfx90a
    kernels = kernel("'one'", first), kernel("two", second, vgpr_spill_count=3, agpr_count=4)
    kernels = (kernels[0][0].replace("'", ""), kernels[0][1]), kernels[1]  # LLVM quotes some names
    one, two = read(write(tmp_path / "a.s", *kernels)).itertuples()
    assert (one.kernel, one.matrix_instructions, one.spill_instructions) == ("one", 1, 0)
    assert one.loads == "1 x 16 B, 1 x 4 B, 1 x 2 B"
    assert (two.kernel, two.spilled_vgprs, two.accum_vgprs, two.spill_instructions) == (
        "two",
        3,
        4,
        2,
    )
    assert two.loads == "1 x 8 B"


def test_what_a_launch_asks_for_comes_from_the_json(tmp_path: Path) -> None:
    write(tmp_path / "with/k.amdgcn", kernel(), num_warps=4, shared=4096)
    write(tmp_path / "without/k.amdgcn", kernel())
    asked, silent = read(tmp_path).itertuples()
    assert (asked.lds_bytes, asked.warps, asked.limited_by) == (4096, 4, "wave slots")
    assert silent.lds_bytes == 0
    assert [silent.warps, silent.waves, silent.limited_by] == [pd.NA] * 3


@pytest.mark.parametrize(
    ("target", "vgprs", "lds", "warps", "waves", "limit"),
    [
        ("gfx942", 64, 0, 4, 8, "wave slots"),
        ("gfx942", 65, 0, 4, 7, "registers"),  # 72 are given out
        ("gfx90a", 512, 0, 4, 1, "registers"),
        ("gfx942", 128, 32768, 4, 2, "LDS"),
        ("gfx942", 256, 32768, 4, 2, "registers and LDS"),
        ("gfx942", 16, 32769, 4, 1, "LDS"),  # a block of 512 bytes more
        ("gfx950", 16, 81921, 4, 1, "LDS"),  # blocks of 1280 bytes
        ("gfx950", 16, 81920, 4, 2, "LDS"),
        ("gfx942", 16, 65537, 4, 0, "LDS"),
        ("gfx942", 168, 0, 8, 2, "registers"),  # three waves would be a workgroup and a half
        ("gfx942", 16, 65536, 1, 0.25, "LDS"),
        ("gfx1100", 16, 0, 4, None, None),
    ],
)
def test_waves_are_whole_workgroups(
    target, vgprs, lds, warps, waves, limit, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "k.amdgcn", kernel(vgpr_count=vgprs), target=target, num_warps=warps, shared=lds
    )
    (row,) = read(file).itertuples()
    found = [None if value is pd.NA else value for value in (row.waves, row.limited_by)]
    assert found == [waves, limit]


# The command


def cut(file: Path) -> None:
    file.write_text(file.read_text().partition(".end_amdgpu_metadata")[0])


def change(old: str, new: str):
    return lambda file: file.write_text(file.read_text().replace(old, new))


def beside(text: str):
    return lambda file: file.with_suffix(".json").write_text(text)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "no metadata"),
        (change("amdgcn_target", "target"), "no metadata"),
        (change("  - .", "  .."), "no metadata"),
        (change("vgpr_count: 32", "vgpr_count: many"), "LLVM's format"),
        (change("vgpr_count: 32", "vgpr_count: -1"), "LLVM's format"),
        (change("vgpr_count: 32", f"vgpr_count: {10**30}"), "LLVM's format"),
        (change(".name:", ".title:"), "LLVM's format"),
        (change("k:\n", "other:\n"), "LLVM's format"),
        (beside("{"), "JSON file from Triton"),
        (beside("[1]"), "JSON file from Triton"),
        (beside('{"shared": 1000000000000000000000000000000}'), "JSON file from Triton"),
        (beside('{"num_warps": 0}'), "JSON file from Triton"),
        (beside('{"shared": "many"}'), "JSON file from Triton"),
        (lambda file: file.write_text(""), "the file is empty"),
        (lambda file: file.rename(file.with_name("k.txt")), ".amdgcn"),
        (lambda file: shutil.rmtree(file.parent), "no such file"),
    ],
)
def test_what_is_no_assembly_is_one_line(damage, words: str, tmp_path: Path, capsys) -> None:
    damage(write(tmp_path / "folder/k.amdgcn", kernel()))
    assert main(["isa", str(tmp_path / "folder")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


# Code objects


def code_object(
    kernels: object, machine: int = 224, target: str = "amdgcn-amd-amdhsa--gfx942:sramecc+"
) -> bytes:
    """An ELF file with a segment of notes: one of another tool, and the metadata of these
    kernels.
    """
    content = msgspec.msgpack.encode(
        {"amdhsa.kernels": kernels, "amdhsa.target": target, "amdhsa.version": [1, 2]}
    )
    notes = b"".join(
        struct.pack("<III", len(name), len(data), kind) + padded(name) + padded(data)
        for name, kind, data in ((b"GNU\0", 3, b"12345"), (b"AMDGPU\0", 32, content))
    )
    numbers = (3, machine, 1, 0, 64, 0, 0x4C, 64, 56, 1, 0, 0, 0)
    header = b"\x7fELF\x02\x01\x01\x40" + bytes(8) + struct.pack("<HHIQQQIHHHHHH", *numbers)
    segment = struct.pack("<IIQQQQQQ", 4, 4, 120, 120, 120, len(notes), len(notes), 4)
    return header + segment + notes


def padded(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // 4) * 4, b"\0")


STATED_KERNEL = {
    ".name": "k",
    ".vgpr_count": 512,
    ".agpr_count": 256,
    ".sgpr_count": 100,
    ".vgpr_spill_count": 7,
    ".sgpr_spill_count": 0,
    ".private_segment_fixed_size": 32,
    ".group_segment_fixed_size": 65536,
    ".wavefront_size": 64,
    ".args": [{".size": 8}],
    ".symbol": "k.kd",
}


def test_a_code_object_states_its_registers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "28_gfx942_code_object_id_2.out"
    path.write_bytes(
        code_object([STATED_KERNEL, STATED_KERNEL | {".name": "other", ".vgpr_spill_count": 0}])
    )
    for given in (path, tmp_path):
        table = read(given)
        assert table["kernel"].tolist() == ["k", "other"]
        assert set(table["target"]) == {"gfx942"}
        numbers = table.loc[0, ["vgprs", "accum_vgprs", "sgprs", "spilled_vgprs", "lds_bytes"]]
        assert numbers.tolist() == [512, 256, 100, 7, 65536]
        assert (
            table[["matrix_instructions", "spill_instructions", "loads", "warps"]]
            .isna()
            .all()
            .all()
        )
    assert main(["isa", str(path), "--fail-on-spill"]) == 1
    assert "llvm-objdump --disassemble" in capsys.readouterr().out


BAD_CODE_OBJECTS = {
    "a program of the host": code_object([STATED_KERNEL], machine=62),
    "no kernel": code_object([]),
    "no note": code_object([STATED_KERNEL])[:120],
    "the header alone": code_object([STATED_KERNEL])[:64],
    "cut off": code_object([STATED_KERNEL])[:250],
    "kernels no list": code_object(7),
    "a count that is a text": code_object([STATED_KERNEL | {".vgpr_count": "many"}]),
    "a count below nothing": code_object([STATED_KERNEL | {".vgpr_count": -1}]),
}


@pytest.mark.parametrize("what", BAD_CODE_OBJECTS)
def test_what_is_no_sound_code_object_is_one_line(what: str, tmp_path: Path) -> None:
    data = BAD_CODE_OBJECTS[what]
    (tmp_path / "a.out").write_bytes(data)
    with pytest.raises(tidyprof.ProfileReadError):
        tidyprof.read_assembly(tmp_path / "a.out")
