"""The pages as JSON, as an OpenAPI 3.1 document, made from the table of pages and the models of their facts."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import models_json_schema

from ampsq import __version__
from ampsq.console.facts import Facts, RefusalFacts
from ampsq.console.page_table import PAGES

if TYPE_CHECKING:
    from ampsq.console.page_table import PageEntry

__all__ = ["pages_document"]

_TEXT: Final = {"type": "string"}
_PLAIN: Final = {"text/plain": {"schema": _TEXT}}
_SCHEMAS: Final = "#/components/schemas/"
#: A name and its meaning, which may go over several lines, in the part on attributes of a docstring.
_ATTRIBUTE: Final = re.compile(r"^ {8}(\w+): (.*(?:\n {12,}.*)*)", re.MULTILINE)
_REFUSALS: Final = {
    "400": "What was asked for is wrong, and the text says what is allowed.",
    "404": "There is no such queue or topic.",
    "503": "The server cannot be reached.",
}
_UNREAD: Final = {
    "401": {"description": "The token is missing or wrong.", "content": _PLAIN},
    "421": {"description": "The console does not answer to this name of a host.", "content": _PLAIN},
}
_PROBES: Final = {
    "/healthz": ("The process answers.", {}),
    "/readyz": ("The server answers, and no duty of the coordinator is late.", {"503": "A line for each fault."}),
    "/metrics": ("Figures for Prometheus.", {"503": "The server cannot be reached."}),
}


@cache
def pages_document() -> dict[str, Any]:
    """Return the document."""
    models: list[type[Facts]] = [RefusalFacts, *dict.fromkeys(each.facts for each in PAGES)]
    _, made = models_json_schema(
        [(each, "serialization") for each in models], ref_template=f"{_SCHEMAS}{{model}}"
    )  # fmt: skip
    schemas = made["$defs"]
    for kind in _kinds(Facts):
        if kind.__name__ in schemas:
            _describe(kind, schemas[kind.__name__])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ampsq console",
            "version": __version__,
            "description": "Every page as JSON, to requests with `Accept: application/json`. Requests read only: "
            "changes need the console's own pages. Names of members stay; new ones are added.",
        },
        "security": [{"token": []}],
        "paths": {
            **{each.documented_path: {"get": _page(each)} for each in PAGES},
            "/openapi.json": {"get": _document()},
            **{path: {"get": _probe(*found)} for path, found in _PROBES.items()},
        },
        "components": {
            "schemas": {name: schemas[name] for name in sorted(schemas)},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "the console's token"},
            },
        },
    }


def _kinds(kind: type[Facts]) -> list[type[Facts]]:
    """Return a model and all that are made of it."""
    return [kind, *(found for each in kind.__subclasses__() for found in _kinds(each))]


def _describe(kind: type[Facts], schema: dict[str, Any]) -> None:
    """Give a schema and its members the words of the model's docstring; more members than these may come."""
    told: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        told |= dict(_ATTRIBUTE.findall((each.__doc__ or "").partition("Attributes:")[2]))
    schema["description"] = (kind.__doc__ or "").partition("\n")[0]
    for name, member in schema["properties"].items():
        member.pop("title", None)
        if name in told:
            member["description"] = " ".join(told[name].split())
    schema.pop("title", None)
    schema.pop("additionalProperties", None)


def _answer(text: str, model: type[Facts]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": {"$ref": _SCHEMAS + model.__name__}}}}


def _page(page: PageEntry) -> dict[str, Any]:
    of = [
        {"name": each, "in": "path", "required": True, "description": "Its name, with / as %2F.", "schema": _TEXT}
        for each in page.parts
    ]
    asked = [
        {"name": name, "in": "query", "required": False, "description": text, "schema": _TEXT}
        for name, text in page.query.items()
    ]
    refused = {status: _answer(text, RefusalFacts) for status, text in _REFUSALS.items()}
    return {
        "operationId": page.name, "summary": page.shows, "parameters": [*of, *asked],
        "responses": {"200": _answer("The facts of the page.", page.facts), **refused, **_UNREAD},
    }  # fmt: skip


def _document() -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": "openapi", "summary": "This document.",
        "responses": {"200": {"description": "The document.", "content": content}, **_UNREAD},
    }  # fmt: skip


def _probe(text: str, others: dict[str, str]) -> dict[str, Any]:
    failed = {status: {"description": meaning, "content": _PLAIN} for status, meaning in others.items()}
    return {
        "summary": text, "security": [], "responses": {"200": {"description": text, "content": _PLAIN}, **failed}
    }  # fmt: skip
