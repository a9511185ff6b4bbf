"""The names and files that a cell needs from the cells before it, and those that it gives to the
cells after it.

A file in the lesson's folder is a name, too: `$FOLDER/` and the text after it, which commands and
Python share.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field

_IN_COMMAND = re.compile(r"\$FOLDER/([\w.-]+)")
_CHANGES = {
    "add",
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "remove",
    "setdefault",
    "sort",
    "update",
}
"""Methods of Python's own containers that change their object."""


@dataclass
class Names:
    """The names that a cell needs, and those that it gives; `files` are the files that it
    mentions.
    """

    needs: set[str] = field(default_factory=set)
    gives: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


def names_of(source: str) -> Names:
    """The names of a cell of Python, whose shell lines are `pass`, or of a cell that begins with
    `%%`.
    """
    if source.startswith("%%"):
        return Names(files=set(_IN_COMMAND.findall(source)))
    tree = ast.parse(source)
    names = Names(files=set(_files(tree)))
    _read(tree.body, names)
    return names


def _files(tree: ast.AST) -> Iterator[str]:
    """The first part of each path that is written as `folder / "part/..."`."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left, ast.Div(), ast.Constant(str(path))) if ast.unparse(left).endswith(
                "folder"
            ):
                yield path.partition("/")[0]


def _read(body: list[ast.stmt], names: Names) -> None:
    """Add the names that these statements need and give, in the order in which they run."""
    for node in body:
        match node:
            case ast.For() | ast.AsyncFor():
                _use(node.iter, names)
                names.gives |= _stored(node.target)
                _read(node.body + node.orelse, names)
            case ast.While() | ast.If():
                _use(node.test, names)
                _read(node.body + node.orelse, names)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    _use(item.context_expr, names)
                    names.gives |= _stored(item.optional_vars) if item.optional_vars else set()
                _read(node.body, names)
            case ast.Try():
                names.gives |= {one.name for one in node.handlers if one.name}
                handled = [one for handler in node.handlers for one in handler.body]
                _read(node.body + handled + node.orelse + node.finalbody, names)
            case _:
                _use(node, names)
                names.gives |= _changed(node)


def _use(node: ast.AST, names: Names) -> None:
    """Add the names that an expression, or a statement without others in it, needs and gives."""
    # Python's own table of symbols knows scopes, such as that of a function.
    table = symtable.symtable(ast.unparse(_WithGenerators().visit(node)), "cell", "exec")
    used = {one.get_name() for one in table.get_symbols() if one.is_referenced()} | set(
        _inside(table)
    )
    if isinstance(node, ast.AugAssign):
        used |= _stored(node.target)
    names.needs |= used - names.gives
    names.gives |= {
        one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()
    }


class _WithGenerators(ast.NodeTransformer):
    """Generators in place of comprehensions, which from Python 3.12 on have no scope of their own
    in the table of symbols (https://peps.python.org/pep-0709/).
    """

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp) -> ast.expr:
        return self.generic_visit(ast.GeneratorExp(node.elt, node.generators))

    visit_SetComp = visit_ListComp  # noqa: N815

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        pair = ast.Tuple([node.key, node.value], ast.Load())
        return self.generic_visit(ast.GeneratorExp(pair, node.generators))


def _inside(table: symtable.SymbolTable) -> Iterator[str]:
    """Names of the notebook that functions, classes and comprehensions read."""
    for child in table.get_children():
        yield from (
            one.get_name() for one in child.get_symbols() if one.is_global() and one.is_referenced()
        )
        yield from _inside(child)


def _stored(target: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _changed(node: ast.stmt) -> set[str]:
    """Names of the tables and containers that a statement changes."""
    targets = [one for one in ast.walk(node) if isinstance(getattr(one, "ctx", None), ast.Store)]
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
    ):
        targets += [node.value.func] if node.value.func.attr in _CHANGES else []
    return {name for one in targets if (name := _root(one))}


def _root(node: ast.AST) -> str:
    """`table` of `table["a"].b`; "" if something else is changed."""
    if isinstance(node, ast.Name):
        return ""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
