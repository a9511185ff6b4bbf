"""The snippet of lesson 10 on a model whose graph breaks."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import REPOSITORY
from tests.snippets.conftest import Run

SNIPPET = REPOSITORY / "snippets/10_compile_cost.py"


def test_cost_of_compiling_and_what_breaks_it(bare: Run, tmp_path: Path) -> None:
    text = SNIPPET.read_text(encoding="utf-8")
    broken = text.replace(
        "        return x + ",
        "        if x.sum() > -1e9:\n            x = x + 1\n        return x + ",
    )
    assert broken != text
    (tmp_path / "own_model.py").write_text(broken)
    done = bare("python", "own_model.py").stdout
    assert "graphs for one call: 2, graph breaks: 1" in done
    assert (
        "(64, 256): 2 graphs compiled\n(64, 256): 0 graphs compiled\n(48, 256): 2 graphs compiled"
        in done
    )
    assert "first compiled call" in done
    assert "eager     median" in done
    assert "compiling pays for itself" in done or "inconclusive" in done
