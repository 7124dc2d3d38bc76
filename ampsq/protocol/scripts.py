"""Composes the Lua scripts; the only module that knows Lua text.

A file ``lua/<room>/<verb>.lua`` is one atomic operation, known by its verb. Its head says what it does:

    --- take: pick up what was pushed ...
    --- ARGV now, subscription_id, wanted, acks...
    --- FAIL UNKNOWN_SUBSCRIPTION
    --- GIVES {elements, refusals}
    --- FLAGS allow-oom
    --- @include clock, fail, settlement

Composing takes the includes (flat local functions from the ``lib`` of any room and from ``lua/lib``, known by their
nouns, each once, only those that are reached), folds
`K.<key>(...)`, `F.<field>`, `V.<value>` and `E.<CODE>` into literals of `ampsq.protocol.schema`, binds the ARGV names
after the includes, so that no include can read them by accident, and puts the check of the instance's format in front
(not of `open`, `read_news`, nor those that upgrade).
`name...` stands for the rest of ARGV and binds ``name_from``, the index of its first value.

An include written ``name()`` is nested: what only it needs is defined inside one function of that name, which returns a
table of its file's functions. Making a closure costs, so a call that never comes there should not make them. As a
server function (`ampsq.protocol.functions`) a nest is made by the first call that comes there, for all later ones.

A variable ``local name = {} -- kept over calls`` of an include is what a server function need not forget: whatever it
holds is right in every later call.
"""
# Long: heads, includes, nests and literals are one grammar, read in one pass.

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.errors import Rejected
from ampsq.protocol import schema
from ampsq.protocol.script_rights import ADMINISTERING, rights_asked

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.resources.abc import Traversable

__all__ = [
    "ComposeError",
    "Script",
    "ScriptPieces",
    "compose",
    "compose_text",
    "forgetting",
    "names",
    "pieces",
    "script",
]

_HEAD = re.compile(r"^--- (?:(ARGV|FAIL|GIVES|FLAGS|@include) |(\w+): )(.*)$")
_FUNCTION = re.compile(r"^local function (\w+)\(")
_VARIABLE = re.compile(r"^local (\w+) = \{\}( -- kept over calls)?$")
_FOLDED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|--.*$|\b([KFVE])\.(\w+)")
#: A file that two threads read at once would be two, and an include of both a contradiction.
_ONE_AT_A_TIME = threading.RLock()
#: Stands for ``K.`` while a line is folded; no Lua file has it.
_KEY = "\x00"
#: A name that is not a field: `x.name` is no use of a function `name`, `x ..name` is.
_WORD = re.compile(r"(?:(?<=\.\.)|(?<![\w.]))[A-Za-z_]\w*")
_CODES = {cls.code.removeprefix("AMPSQ_"): cls.code for cls in Rejected.__subclasses__()}
_FORMAT_CHECK = (
    "local stored = call('HGET', K.instance(), F.format) if stored ~= V.format and stored ~= V.format_of_groups then"
    " fail(E.FORMAT_MISMATCH, {found = stored, expected = V.format}) end"
)
#: The same in a script that may wake a coordinator (lua/lib/timetable.lua): whether one rests costs no call of its own.
_FORMAT_AND_REST_CHECK = (
    "local stored = call('HMGET', K.instance(), F.format, F.resting)"
    " if stored[1] ~= V.format and stored[1] ~= V.format_of_groups then"
    " fail(E.FORMAT_MISMATCH, {found = stored[1], expected = V.format}) end resting.mode = stored[2]"
)
#: What that check needs of the include.
_REST = "resting"
#: `open` makes the format; `read_news` tells of each of many instances whether it has it.
_UNCHECKED = frozenset({"open", "read_news"})
#: The room whose scripts run while an instance has no format: they look at how far its upgrade is.
_UPGRADE = "upgrade/"


class ComposeError(Exception):
    """A Lua file cannot be composed: the text starts with its place, ``lua/delivery/take.lua:12``."""


@dataclass(frozen=True, slots=True)
class Script:
    """One composed script.

    Attributes:
        name: its verb, the file's name.
        source: what the server runs.
        sha: SHA1 of the source, as EVALSHA takes it.
        arguments: the ARGV names in order; the last may end in ``...``.
        fails: the codes that it may refuse with.
        meaning: the head's first line.
        gives: what it returns.
        where: for each line of the source, the file and line it came from.
    """

    name: str
    source: str
    sha: str
    arguments: tuple[str, ...]
    fails: tuple[str, ...]
    meaning: str
    gives: str
    where: tuple[str, ...] = field(repr=False)

    @property
    def only_reads(self) -> bool:
        """Return whether its flags say that it writes nothing; the server sees to it."""
        return "no-writes" in self.source.partition("\n")[0]

    def place(self, line: int) -> str:
        """Tell which file and line stand behind a line of the composed source."""
        return self.where[line - 1] if 0 < line <= len(self.where) else f"{self.name}.lua"


class _SourceLine(NamedTuple):
    text: str
    place: str


@dataclass(slots=True)
class _File:
    path: str
    meaning: str = ""
    head: dict[str, str] = field(default_factory=dict)
    includes: list[str] = field(default_factory=list)
    functions: dict[str, list[_SourceLine]] = field(default_factory=dict)
    body: list[_SourceLine] = field(default_factory=list)


#: All that can be reached, in the order of definition: functions and variables as their lines, nests as their files.
_Defined = dict[str, list[_SourceLine] | _File]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_include(path: str) -> bool:
    return "lib" in path.split("/")[:-1]


def _folder() -> Traversable:
    from importlib import resources  # noqa: PLC0415 - it brings what packs and unpacks files; a first call reads scripts

    return resources.files("ampsq.lua")


@cache
def _paths() -> tuple[dict[str, str], dict[str, str]]:
    """Find each script, ``delivery/take`` by its verb, and each include, ``leases/lib/handover`` by its noun."""
    scripts: dict[str, str] = {}
    includes: dict[str, str] = {}
    folders = [("", _folder())]
    while folders:
        folder, files = folders.pop()
        for file in sorted(files.iterdir(), key=lambda each: each.name):
            if file.is_dir():
                folders.append((f"{folder}{file.name}/", file))
            elif file.name.endswith(".lua"):
                name = file.name.removesuffix(".lua")
                path = f"{folder}{name}"
                known = includes if _is_include(path) else scripts
                if name in known:
                    raise ComposeError(f"lua/{path}.lua: lua/{known[name]}.lua has the same name")
                known[name] = path
    return scripts, includes


def _parse(path: str, text: str) -> _File:
    file, function = _File(path), None
    for number, raw in enumerate(text.splitlines(), 1):
        place = f"lua/{path}.lua:{number}"
        if head := _HEAD.match(raw):
            if head[1] == "@include":
                file.includes += _split(head[3])
            elif head[1]:
                file.head[head[1]] = head[3]
            else:
                file.meaning = head[3]
            continue
        if not raw.strip() or raw.lstrip().startswith("--"):
            continue
        if not _is_include(path):
            file.body.append(_SourceLine(raw, place))
            continue
        if variable := _VARIABLE.match(raw):
            file.functions[variable[1]] = [_SourceLine(raw, place)]
            continue
        if start := _FUNCTION.match(raw):
            function = file.functions.setdefault(start[1], [])
        (file.body if function is None else function).append(_SourceLine(raw, place))
        if raw == "end":
            function = None
    return file


@cache
def _read(path: str) -> _File:
    return _parse(path, _folder().joinpath(*f"{path}.lua".split("/")).read_text())


def _includes(file: _File, chain: tuple[str, ...], done: dict[str, _File], defined: _Defined) -> None:
    for include in file.includes:
        name = include.removesuffix("()")
        path = _paths()[1].get(name)
        if path is None:
            raise ComposeError(f"lua/{file.path}.lua: no include has the name {name}")
        if path in chain:
            raise ComposeError(f"lua/{file.path}.lua: include cycle: {' -> '.join((*chain, path))}")
        included = _read(path)
        if path not in done:
            if included.body:
                raise ComposeError(
                    f"{included.body[0].place}: an include holds functions and `local name = {{}}`, nothing else"
                )
            _includes(included, (*chain, path), done, defined)
            done[path] = included
            for function, lines in included.functions.items():
                if function in defined:
                    raise ComposeError(f"{lines[0].place}: {function} is defined twice")
                defined[function] = lines
        if include != name and defined.setdefault(name, included) is not included:
            raise ComposeError(f"lua/{file.path}.lua: {include} cannot be nested: {name} is defined as something else")


@cache
def _words(text: str) -> tuple[str, ...]:
    """The words of a line, each once; kept, since most lines are in many scripts."""
    return tuple(dict.fromkeys(_WORD.findall(text)))


def _wanted(defined: _Defined, body: list[_SourceLine], around: frozenset[str]) -> set[str]:
    """The names that a body reaches, without those around it and without what only its nests need."""
    wanted: set[str] = set()
    open_lines = list(body)
    while open_lines:
        text = open_lines.pop().text
        for word in _words(text):
            found = defined.get(word)
            # A nest is used where it is called: its name may be a variable's elsewhere.
            is_used = isinstance(found, list) or (found is not None and f"{word}()" in text)
            if is_used and word not in wanted and word not in around:
                wanted.add(word)
                open_lines += found if isinstance(found, list) else []
    return wanted


def _reached(
    defined: _Defined, body: list[_SourceLine], around: frozenset[str], *, are_kept: bool
) -> list[_SourceLine]:
    """The definitions that a body reaches, in their order, without those around it; nests with theirs inside."""
    wanted = _reached_names(defined, body, around)
    known, lines = around | wanted, []
    for name, found in defined.items():
        if name in wanted:
            lines += found if isinstance(found, list) else _nest(name, found, defined, known, are_kept=are_kept)
    return lines


def _reached_names(defined: _Defined, body: list[_SourceLine], around: frozenset[str]) -> set[str]:
    wanted = _wanted(defined, body, around)
    # What several nests have inside stands beside them, once: a script's length is work for the server, too.
    inner = Counter(name for nest in _nests(defined, wanted) for name in _nested(nest, defined, around | wanted))
    return wanted | {name for name, number in inner.items() if number > 1}


def _variables(defined: _Defined, names: set[str]) -> list[str]:
    """The variables of those names that a call makes anew, in the order of definition."""
    return [
        name
        for name, found in defined.items()
        if name in names
        and isinstance(found, list)
        and (variable := _VARIABLE.match(found[0].text))
        and not variable[2]
    ]


def forgetting(variables: Iterable[str]) -> list[str]:
    """Return the lines that make variables anew; tables that were not touched stay."""
    return [f"if next({name}) ~= nil then {name} = {{}} end" for name in variables]


def _nests(defined: _Defined, names: Iterable[str]) -> list[_File]:
    return [found for name in names if isinstance(found := defined[name], _File)]


def _nested(file: _File, defined: _Defined, around: frozenset[str]) -> set[str]:
    """The nests within a nest, at any depth."""
    names: set[str] = set()
    open_files = [file]
    while open_files:
        inside = _wanted(defined, [_table(open_files.pop())], around)
        new = {name for name in inside if isinstance(defined[name], _File)} - names
        names |= new
        open_files += _nests(defined, new)
    return names


def _table(file: _File) -> _SourceLine:
    """Return the line that a nest returns: a table of its file's functions."""
    exported = [function for function, lines in file.functions.items() if _FUNCTION.match(lines[0].text)]
    return _SourceLine(
        f"return {{{', '.join(f'{function} = {function}' for function in exported)}}}", f"lua/{file.path}.lua:1"
    )


def _nest(name: str, file: _File, defined: _Defined, around: frozenset[str], *, are_kept: bool) -> list[_SourceLine]:
    """A file as one function that returns a table of the file's functions; where nests are kept, once made.

    How its variables are made anew stands in `nests` then, beside it.
    """
    table = _table(file)
    before, after = [], [table.text]
    if are_kept:
        variables = _variables(defined, _reached_names(defined, [table], around))
        before = [f"if nests.{name} then return nests.{name} end"]
        after = ["nests[#nests + 1] = function()", *forgetting(variables), "end"] if variables else []
        after += [table.text.replace("return ", f"nests.{name} = ", 1), f"return nests.{name}"]
    return [
        *(_SourceLine(text, table.place) for text in (f"local function {name}()", *before)),
        *_reached(defined, [table], around, are_kept=are_kept),
        *(_SourceLine(text, table.place) for text in (*after, "end")),
    ]


@cache
def _fold(line: _SourceLine) -> str:
    """Put the literals of the schema in place of their names; kept, since most lines are in many scripts."""

    def fold(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if not kind:
            return "" if match[0].startswith("--") else match[0]
        table = {"K": schema.KEYS, "F": schema.FIELDS, "V": schema.VALUES, "E": _CODES}[kind]
        if name not in table:
            raise ComposeError(f"{line.place}: unknown name {kind}.{name}")
        if kind == "K":
            return f"{_KEY}{name}"
        value = table[name]
        return str(value) if isinstance(value, int) else f"'{value}'"

    text = _FOLDED.sub(fold, line.text).rstrip()
    while _KEY in text:
        text = _fold_last_key(text, line.place)
    return text


def _fold_last_key(text: str, place: str) -> str:
    """Spell out the last key of a line, ``K.log(topic)``: a call for each would cost more than the text.

    The last one first, so that a key within the parameters of another is spelled already.
    """
    before, _, rest = text.rpartition(_KEY)
    call = re.match(r"(\w+)\(", rest)
    if call is None:
        raise ComposeError(f"{place}: K.{rest.split(' ')[0]} takes its parameters in brackets")
    name, arguments, end = call[1], [""], call.end()
    depth, quote = 1, ""
    while depth:
        letter = rest[end : end + 1]
        if not letter:
            raise ComposeError(f"{place}: the brackets of K.{name} do not close on this line")
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in "([{") - (letter in ")]}") if not quote else 0
        end += 1
        if depth == 1 and letter == "," and not quote:
            arguments.append("")
        elif depth:
            arguments[-1] += letter
    parts = schema.KEYS[name].suffix.replace(">", "<").split("<")
    given = [argument.strip() for argument in arguments if argument.strip()]
    if len(given) != len(parts) // 2:
        raise ComposeError(f"{place}: K.{name} takes {len(parts) // 2} parameters, got {len(given)}")
    pieces = [f"'{part}'" if i % 2 == 0 else given[i // 2] for i, part in enumerate(parts) if part]
    return f"{before}(P .. {' .. '.join(pieces)}){rest[end:]}"


def _bind(head: dict[str, str], start: str) -> list[tuple[str, str]]:
    arguments = _split(head.get("ARGV", ""))
    single = [name for name in arguments if not name.endswith("...")]
    lines = []
    if single:
        values = ", ".join(f"ARGV[{i}]" for i in range(1, len(single) + 1))
        lines.append(f"local {', '.join(single)} = {values}")
    if len(single) < len(arguments):
        lines.append(f"local {arguments[-1][:-3]}_from = {len(arguments)}")
    return [(text, start) for text in lines]


def compose(name: str, *, shebang: bool = True) -> Script:
    """Compose one script of ``lua/``.

    Args:
        name: its verb, the file's name without ``.lua``.
        shebang: False leaves the first line with the flags out, for servers that do not know it. Such a server
            refuses acknowledgements when its memory is full.

    Raises:
        ComposeError: a name is unknown, an include is missing or in a cycle.
    """
    with _ONE_AT_A_TIME:
        return _compose(_read(_path(name)), shebang=shebang)


def compose_text(name: str, text: str) -> Script:
    """Compose a script that is no file of ``lua/``, with its includes; for tests.

    Raises:
        ComposeError: as of `compose`.
    """
    with _ONE_AT_A_TIME:
        return _compose(_parse(name, text), shebang=True)


class ScriptPieces(NamedTuple):
    """The pieces of a script, as lines with their places, its names folded into literals.

    Attributes:
        flags: as the server knows them.
        definitions: the functions and variables that it reaches.
        variables: the names of those that a call makes anew, without those within nests.
        checks: of rights, and of the instance's format.
        body: of the script itself, below the names of its arguments.
    """

    flags: list[str]
    definitions: list[tuple[str, str]]
    variables: list[str]
    checks: list[tuple[str, str]]
    body: list[tuple[str, str]]


def pieces(name: str, *, are_nests_kept: bool = False) -> ScriptPieces:
    """Compose the pieces of one script; raises as `compose`.

    Args:
        name: its verb.
        are_nests_kept: a nest is made once, and then stands in the table `nests` under its name; there is also, in a
            list, one function for each nest that makes its variables anew.
    """
    with _ONE_AT_A_TIME:
        return _pieces(_read(_path(name)), are_nests_kept=are_nests_kept)


def _path(name: str) -> str:
    path = _paths()[0].get(name)
    if path is None:
        raise ComposeError(f"lua/: no script has the name {name}")
    return path


def _pieces(main: _File, *, are_nests_kept: bool = False) -> ScriptPieces:
    name = main.path.rpartition("/")[2]
    start = f"lua/{main.path}.lua:1"
    done: dict[str, _File] = {}
    defined: _Defined = {}
    _includes(main, (main.path,), done, defined)
    is_checked = name not in _UNCHECKED and not main.path.startswith(_UPGRADE)
    check_text = _FORMAT_AND_REST_CHECK if _REST in defined else _FORMAT_CHECK
    check = [_SourceLine(check_text, start)] if is_checked else []
    whole = [*check, *main.body]
    reached = _reached(defined, whole, frozenset(), are_kept=are_nests_kept)
    folded = [(_fold(line), line.place) for line in reached]
    last = [(_fold(line), line.place) for line in main.body]
    # A script that writes nothing leaves nothing half done.
    source = "\n".join(text for text, _ in folded + last)
    is_asking = "no-writes" not in main.head.get("FLAGS", "") or name in ADMINISTERING
    asked = [(text, start) for text in rights_asked(name, source)] if is_asking else []
    asked += [(_fold(line), line.place) for line in check]
    variables = _variables(defined, _reached_names(defined, whole, frozenset()))
    return ScriptPieces(_split(main.head.get("FLAGS", "")), folded, variables, asked, [*_bind(main.head, start), *last])


def _compose(main: _File, *, shebang: bool) -> Script:
    parts = _pieces(main)
    start, flags = f"lua/{main.path}.lua:1", ",".join(parts.flags)
    head = [f"#!lua flags={flags}" if flags else "#!lua"] if shebang else []
    # The functions stand inside another one, so that these two are its upvalues: making a closure looks through all
    # open variables of the frame for each that it uses, and the oldest are found last (2 us with 60 functions).
    head += ["local call = redis.call", "local P = KEYS[1]", "local function main()"]
    lines = [(text, start) for text in head] + parts.definitions + parts.checks + parts.body
    lines += [("end", start), ("return main()", start)]
    source = "\n".join(text for text, _ in lines) + "\n"
    return Script(
        name=main.path.rpartition("/")[2],
        source=source,
        sha=hashlib.sha1(source.encode()).hexdigest(),  # noqa: S324  (Redis names scripts by SHA1)
        arguments=tuple(_split(main.head.get("ARGV", ""))),
        fails=tuple(_split(main.head.get("FAIL", ""))),
        meaning=main.meaning,
        gives=main.head.get("GIVES", ""),
        where=tuple(place for _, place in lines),
    )


@cache
def script(name: str) -> Script:
    """The composed script of that name; composed once a process."""
    return compose(name)


def names() -> list[str]:
    """The names of all scripts, sorted."""
    with _ONE_AT_A_TIME:
        return sorted(_paths()[0])
