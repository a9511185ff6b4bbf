"""GPUs in the kernel driver's files."""

from __future__ import annotations

from pathlib import Path

from proflab import session


def test_gpus_are_the_processors_with_simd_units(tmp_path: Path) -> None:
    device, nodes = tmp_path / "kfd", tmp_path / "nodes"
    for place, version in enumerate((0, 90402, 90010, *[0] * 7, 110501)):
        (nodes / str(place)).mkdir(parents=True)
        text = f"simd_count {1216 if version else 0}\ngfx_target_version {version}\n"
        (nodes / str(place) / "properties").write_text(text)
    assert session.gpu_architectures(device, nodes) == ()
    device.write_text("")
    assert session.gpu_architectures(device, nodes) == ("gfx942", "gfx90a", "gfx1151")
    assert session.gpu_architectures(device, tmp_path / "none") == ()
