"""Finds the types that public calls return: by their annotations, those too that are imported for checkers alone."""

from __future__ import annotations

import ast
import importlib
import inspect
import typing
from functools import cache

#: Calls by other means that give something.
_GIVING = ("__enter__", "__aenter__", "__iter__", "__aiter__", "__getitem__")


@cache
def names_in(module):
    """All names of a module, those included that only checkers import."""
    found = dict(vars(importlib.import_module(module)))
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ampsq"):
            origin = importlib.import_module(node.module)
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, getattr(origin, alias.name))
    return found


def classes_of(annotation, module):
    """Return the classes of ours in an annotation, aliases resolved."""
    if isinstance(annotation, str):
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from classes_of(node.value, module) if node.value.isidentifier() else ()
            elif isinstance(node, ast.Name):
                yield from classes_of(names_in(module).get(node.id), module)
    elif isinstance(annotation, type):
        if annotation.__module__.startswith("ampsq"):
            yield annotation
    elif annotation is not None and typing.get_origin(annotation) is not typing.Literal:
        for part in typing.get_args(annotation):
            yield from classes_of(part, module)


def given_to_callbacks(annotation, module):
    """Return the classes of ours that a parameter's functions are called with."""
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if (
            isinstance(node, ast.Subscript)
            and ast.unparse(node.value) == "Callable"
            and isinstance(node.slice, ast.Tuple)
        ):
            yield from classes_of(ast.unparse(node.slice.elts[0]), module)


def members(kind):
    """The functions of all public calls of a class, its own and inherited ones; properties are calls."""
    for name in sorted({name for each in kind.__mro__ for name in vars(each)}):
        if name.startswith("_") and name not in _GIVING:
            continue
        member = inspect.getattr_static(kind, name)
        member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(member) and member.__module__.startswith("ampsq"):
            yield member


def given_by(function):
    """Yield the classes of ours that a call returns, or calls given functions with, with the place that says so."""
    for parameter, annotation in function.__annotations__.items():
        if parameter == "return":
            for each in classes_of(annotation, function.__module__):
                yield each, function.__qualname__
        elif isinstance(annotation, str):
            for each in given_to_callbacks(annotation, function.__module__):
                yield each, f"{function.__qualname__}, {parameter}"


def field_names(kind):
    """The fields of a dataclass or a named tuple, as far as they are public."""
    names = getattr(kind, "__dataclass_fields__", ()) or (kind._fields if issubclass(kind, tuple) else ())
    return [name for name in names if not name.startswith("_")]


def fields_of(kind):
    """Yield the classes of ours in the fields of a dataclass or a named tuple, with the field."""
    if field_names(kind):
        for each in kind.__mro__:
            for field, annotation in vars(each).get("__annotations__", {}).items():
                if not field.startswith("_") and each.__module__.startswith("ampsq"):
                    for found in classes_of(annotation, each.__module__):
                        yield found, f"{kind.__name__}.{field}"


def returned(roots):
    """Class -> the call that gives it, from some classes on, what is given in turn included."""
    found, ahead = {}, list(roots)
    seen = set(ahead)
    while ahead:
        kind = ahead.pop()
        makers = [kind.__init__] if kind in roots and inspect.isfunction(kind.__init__) else []
        for each, where in [*fields_of(kind), *(pair for call in [*members(kind), *makers] for pair in given_by(call))]:
            found.setdefault(each, where)
            if each not in seen:
                seen.add(each)
                ahead.append(each)
    return found
