"""Each lint rule on a tiny notebook that breaks it, and on one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat import NotebookNode, v4

from tools.notebook_lint import Page, lint

TITLE = "# One title"


def notebook(*cells: NotebookNode | str, title: str = TITLE, **metadata: object) -> NotebookNode:
    made = [v4.new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    return v4.new_notebook(cells=[v4.new_markdown_cell(title), *made], metadata=metadata)


def text(source: str, *tags: str) -> NotebookNode:
    return v4.new_markdown_cell(source, metadata={"tags": list(tags)} if tags else {})


def tagged(source: str, *tags: str) -> NotebookNode:
    return v4.new_code_cell(source, metadata={"tags": list(tags)})


def run(source: str) -> NotebookNode:
    return v4.new_code_cell(
        source, outputs=[v4.new_output("stream", text="hello")], execution_count=1
    )


BAD = {
    "no-outputs": [notebook(run("print('hello')"))],
    "no-skipping": [
        notebook(tagged("1", "skip-execution")),
        notebook(tagged("1", "raises-exception")),
        notebook(text("words", "skip")),
        notebook(execution={"allow_errors": True}),
    ],
    "no-absolute-paths": [
        notebook("open('/home/me/trace.json')"),
        notebook('folder = Path("/opt/rocm")'),
        notebook("folder = '~/traces'"),
        notebook("%%bash\nls /scratch/project"),
        notebook("%%bash\nPATH=bin:/opt/rocm/bin ls"),
        notebook("%%bash\necho x >/tmp/x"),
        notebook('x = "C:\\\\traces"'),
    ],
    "own-folder": [notebook("%%bash\ncat runs/02/x"), notebook('open("runs/02/x")')],
    "no-installing": [
        notebook("!pip install torch"),
        notebook("%pip install torch"),
        notebook("%%bash\npython -m pip install torch"),
        notebook('subprocess.run("conda install numpy", shell=True)'),
    ],
    "short-cells": [
        notebook("\n".join("x = 1" for _ in range(26))),
        notebook(text("\n\n".join("word" * 14 for _ in range(14)))),
    ],
    "short-functions": [
        notebook("def long(x):\n" + "    x += 1\n" * 11 + "    return x"),
        notebook(
            "%matplotlib inline\nclass A:\n    def long(x):\n"
            + "        x += 1\n" * 11
            + "        return x"
        ),
    ],
    "valid-python": [notebook("answer = = 3"), notebook("files = !ls")],
    "ordered-headings": [
        notebook(title="## No H1"),
        notebook(title="no heading"),
        notebook(text("# A second title")),
        notebook(text("### Jumped")),
        notebook(text("## Good\n\nwords\n\n#### Jumped")),
        notebook(text("##")),
        notebook(text("Title by underline\n===")),
    ],
    "images-have-text": [notebook(text("![](here.png)")), notebook(text('<img src="here.png">'))],
    "links-resolve": [
        notebook(text("[a](missing.md)")),
        notebook(text("[a][b]\n\n[b]: missing.md")),
        notebook(text("![picture](missing.png)")),
        notebook(text('<a href="missing.md">a</a>')),
        notebook(text("[a](/here.png)")),
        notebook(text("[a](#No-such-heading)")),
    ],
    "no-typed-numbers": [
        notebook(text("It takes 26.2 ms.")),
        notebook(text("It takes **26** µs.")),
        notebook(text("Kernels fill 94% of it.")),
        notebook(text("About 94 percent.")),
        notebook(text("It reads 5.3 TB/s.")),
        notebook(text("It is 2.19x faster, or 2×.")),
        notebook(text("| kernel | time |\n| --- | --- |\n| gemm | 1,200 ns |")),
        notebook(text("In the output: `31 us`.")),
    ],
    "known-commands": [
        notebook("%%bash\nrocprofv3 --kernel-tracer -- python -m cifar_train"),
        notebook(text("Say `python -m cifar_train --no-such-option`.")),
    ],
}

GOOD = [
    notebook(),
    notebook("print(1)", tagged("2", "solution"), text("words", "given")),
    notebook(
        "open(folder / 'trace.json'); x = a / b",
        "%%bash\ncat $FOLDER/x 2>/dev/null; ls /sys/class/kfd",
        "u = 'https://x.org/y'",
    ),
    notebook("\n".join("x = 1" for _ in range(25))),
    notebook("def short(x):\n" + "    x += 1\n" * 10 + "    return x"),
    notebook("%matplotlib inline\n!ls\nfor x in y:\n    %timeit x"),
    notebook(text("## Two\n\n### Three\n\n## Two again"), text("```\n# a comment in code\n```")),
    notebook(
        text("![A timeline of two streams](here.png)"),
        text('<img src="here.png" alt="A timeline">'),
    ),
    notebook(
        text(
            "[a](here.png#part) [b](https://amd.com) [c](mailto:x@y.org) [d](#A-heading)\n\n## A"
            " heading"
        )
    ),
    notebook(text("Peak: 1307 TFLOP/s, 5.3 TB/s, 90 %.", "given")),
    notebook(
        text(
            "Lesson 02: 3 steps on 2 GPUs, images of 32x32 or 32 x 32, about 75 minutes, ROCm 6.4,"
            " MI300X, 8 ranks."
        )
    ),
    notebook(text("```\ntook 31 us\n```")),
    notebook(text("[5 ms in a link target only](here.png?5ms)".replace("5 ms in", "In"))),
    notebook(
        "%%bash\nrocprofv3 --kernel-trace -- python -m cifar_train | tail -n 1",
        text("`amd-smi` tells."),
    ),
]


def page(made: NotebookNode, folder: Path) -> Page:
    (folder / "here.png").write_bytes(b"")
    return Page(folder / "00_lesson.ipynb", made, folder)


@pytest.mark.parametrize(
    ("rule", "made"),
    [(rule, made) for rule, notebooks in BAD.items() for made in notebooks],
    ids=lambda item: str(item)[:20],
)
def test_bad_notebook_breaks_its_rule_and_no_other(
    rule: str, made: NotebookNode, tmp_path: Path
) -> None:
    findings = lint(page(made, tmp_path))
    assert {finding.rule for finding in findings} == {rule}, [str(finding) for finding in findings]


@pytest.mark.parametrize("made", GOOD, ids=range(len(GOOD)))
def test_good_notebook_has_no_findings(made: NotebookNode, tmp_path: Path) -> None:
    assert [str(finding) for finding in lint(page(made, tmp_path))] == []
