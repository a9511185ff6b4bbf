"""The snippets of lesson 13: the judge of step times agrees with the gate, the collector keeps what
is there.
"""

from __future__ import annotations

from pathlib import Path

from tests.snippets.conftest import Run


def test_the_report_keeps_what_is_there(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "tunableop_results0.csv").write_text(
        "Validator,PT_VERSION,2.5.0\nGemm,tn_1_2_3,Default,0.1\n"
    )
    bare(
        "bash",
        "snippets/13_report.sh",
        "old",
        MIOPEN_FIND_MODE="NORMAL",
        HOME=str(tmp_path),
        SECRET_TOKEN="x",
    )
    kept = {path.name: path.read_text() for path in (tmp_path / "old").iterdir()}
    assert "PyTorch version:" in kept["torch.txt"]
    assert "MIOPEN_FIND_MODE=NORMAL\n" in kept["variables.txt"]
    assert "SECRET_TOKEN" not in kept["variables.txt"]
    assert kept["tunableop_validators.txt"].endswith("Validator,PT_VERSION,2.5.0\n")
    assert kept["rocminfo.txt"]
