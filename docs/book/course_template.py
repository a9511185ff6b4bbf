"""Export the book into a copy of LUMI AI Factory's course template: `python -m
docs.book.course_template FOLDER`.

The form is that of https://github.com/lumi-ai-factory/course-template at 8aa44b1, as its README.md,
content/index.md and src/lib/content.ts say: each Markdown file below `content` is a page, and
begins with its `title`, `nav_order` and, below another page, that page's title as `parent`;
`/folder/name` links to it. Files to look at or to download lie below `public/assets`. The template
leaves out what cells print (src/lib/notebook.ts), and so does this.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docs.book.contents import START, Part, contents
from docs.book.staging import LINK
from tidyprof.errors import UserError

REPOSITORY = Path(__file__).resolve().parents[2]
NO_DOWNLOAD = ("", ".md")
"""Types of files that the template takes for pages; as assets they get the ending .txt."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all pages. Returns 0, or 2 if the folder is not a copy of the template."""
    folder = build_parser().parse_args(arguments).folder
    try:
        export(REPOSITORY, folder)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.book.course_template", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("folder", type=Path, help="a clone of your copy of the template")
    return parser


def export(repository: Path, folder: Path) -> None:
    """Write every page of the book, and the files that they link to, into a copy of the template.
    Raises UserError for a folder that is no such copy.
    """
    if not (folder / "content").is_dir():
        raise UserError(
            f"{folder}: no folder `content` is in it; clone your copy of the template, and give its"
            " path"
        )
    parts = contents(repository)
    pages = {START, *(page for part in parts for page in part.pages)}
    write_page(repository, START, pages, folder, {"nav_order": 1, "title": "Home"})
    for number, part in enumerate(parts, 2):
        write_chapter(folder, part, number)
        for place, page in enumerate(part.pages, 1):
            write_page(
                repository, page, pages, folder, {"parent": part.caption, "nav_order": place}
            )


def write_chapter(folder: Path, part: Part, number: int) -> None:
    """Write the page below which the pages of a part are."""
    name = part.caption.lower().replace(" ", "-")
    text = f"{front_matter({'title': part.caption, 'nav_order': number})}\n# {part.caption}\n"
    (folder / "content" / f"{name}.md").write_text(text, encoding="utf-8")


def write_page(
    repository: Path, page: str, pages: set[str], folder: Path, fields: dict[str, str | int]
) -> None:
    """Write one page of the book, and the files that it links to."""
    source = repository / page
    text = lesson_text(source) if source.suffix == ".ipynb" else source.read_text(encoding="utf-8")
    text = LINK.sub(lambda found: f"]({moved(found[1], repository, page, pages, folder)})", text)
    number = source.name[:3] if source.suffix == ".ipynb" else ""
    title = re.search(r"^# (.*)", text, re.MULTILINE)[1].replace("`", "")
    target = folder / "content" / f"{slug(page) or 'index'}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    # Lessons are known by their number, which their title lacks.
    fields = {"title": f"{number.replace('_', ' ')}{title}"} | fields
    target.write_text(f"{front_matter(fields)}\n{text}", encoding="utf-8")


def front_matter(fields: dict[str, str | int]) -> str:
    """The lines with which each page begins; JSON's texts are YAML's, too."""
    return "\n".join(
        ["---", *(f"{key}: {json.dumps(value)}" for key, value in fields.items()), "---", ""]
    )


def slug(page: str) -> str:
    """The address of a page of the book in the template."""
    return "" if page == START else str(Path(page).with_suffix(""))


def lesson_text(notebook: Path) -> str:
    """A lesson as Markdown, without its first and last cell, which link to the neighbouring
    lessons.
    """
    texts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"][1:-1]:
        text = "".join(cell["source"])
        # A fence has to be longer than any in the cell.
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        texts.append(f"{fence}python\n{text}\n{fence}" if cell["cell_type"] == "code" else text)
    return "\n\n".join(texts) + "\n"


def moved(link: str, repository: Path, page: str, pages: set[str], folder: Path) -> str:
    """The link as it is in the template; a file that is not a page is copied."""
    parts = urlsplit(link)
    linked = ((repository / page).parent / unquote(parts.path)).resolve()
    if parts.scheme or not parts.path or not linked.is_file():
        return link
    name = str(linked.relative_to(repository.resolve()))
    if name in pages:
        return f"/{slug(name)}" + (f"#{parts.fragment}" if parts.fragment else "")
    asset = f"assets/{name}.txt" if linked.suffix in NO_DOWNLOAD else f"assets/{name}"
    target = folder / "public" / asset
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(linked, target)
    return f"./{asset}"


if __name__ == "__main__":
    raise SystemExit(main())
