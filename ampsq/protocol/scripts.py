"""Composes the Lua scripts; the only module that knows Lua text.

A file ``lua/<room>/<verb>.lua`` is one atomic operation, known by its verb. Its head says what it does:

    --- take: pick up what was pushed ...
    --- ARGV now, subscription_id, wanted, acks...
    --- FAIL UNKNOWN_SUBSCRIPTION
    --- GIVES {elements, refusals}
    --- FLAGS allow-oom
    --- READS F.catalog, F.origin
    --- @include clock, fail, settlement

Composing takes the includes (flat local functions from the ``lib`` of any room and from ``lua/lib``, known by their
nouns, each once, only those that are reached), folds
`K.<key>(...)`, `F.<field>`, `V.<value>` and `E.<CODE>` into literals of `ampsq.protocol.schema`, binds the ARGV names
after the includes, so that no include can read them by accident, and puts the check of the instance's format in front
(not of `open`, `read_news`, nor those that upgrade). Fields of the instance that a script `READS` are read with that,
and stand in `stored`, from its third value on.
`name...` stands for the rest of ARGV and binds ``name_from``, the index of its first value.

An include written ``name()`` is nested: what only it needs is defined inside one function of that name, which returns a
table of its file's functions. Making a closure costs, so a call that never comes there should not make them.

A client calls a script by the SHA1 of its text (`Script`), which stands in `ampsq.protocol.released_scripts`. Most
servers know the script, and to compose it takes longer than to call it; so it is composed when a server asks for it.

Several scripts are also composed as one library (`compose_library`), for server functions: each function that any of
them reaches stands there once, whatever nests it is in, and is made once. A variable
``local name = {} -- kept over calls`` of an include is what such a library need not forget: whatever it holds is right
in every later call.
"""
# Long: heads, includes, nests and literals are one grammar, read in one pass.

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.errors import Rejected, ReleaseReplaced
from ampsq.protocol import schema
from ampsq.protocol.script_rights import ADMINISTERING, rights_asked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from importlib.resources.abc import Traversable

__all__ = [
    "LOADING",
    "ComposeError",
    "ComposedScript",
    "Library",
    "LibraryScript",
    "Script",
    "check_limits",
    "compose",
    "compose_library",
    "compose_text",
    "names",
    "script",
    "sources_hash",
]

_HEAD = re.compile(r"^--- (?:(ARGV|FAIL|GIVES|FLAGS|READS|@include) |(\w+): )(.*)$")
_FUNCTION = re.compile(r"^local function (\w+)\(")
_VARIABLE = re.compile(r"^local (\w+) = \{\}( -- kept over calls)?$")
_HEADED = "--- "
#: Whether a line may have something to fold.
_has_folded = re.compile("[KFVE][.]|--").search
_FOLDED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|--.*$|\b([KFVE])\.(\w+)")
#: A file that two threads read at once would be two, and an include of both a contradiction.
_ONE_AT_A_TIME = threading.RLock()
#: Stands for ``K.`` while a line is folded; no Lua file has it.
_KEY = "\x00"
_LOCALS = re.compile(r"^local (?:function (\w+)|([\w, ]+))")
#: Lua takes 200 local variables of a function at a time, and 60 upvalues. Fewer are allowed here, since loops need some
#: and upvalues are counted by words alone; so a test finds a script with too many before a server refuses it.
_MOST_LOCALS = 190
_MOST_UPVALUES = 58
#: A name that is not a field: `x.name` is no use of a function `name`, `x ..name` is.
_WORD = re.compile(r"(?:(?<=\.\.)|(?<![\w.]))[A-Za-z_]\w*")
_CALLED = re.compile(_WORD.pattern + r"(?=\(\))")
_CODES = {cls.code.removeprefix("AMPSQ_"): cls.code for cls in Rejected.__subclasses__()}
_FORMAT_CHECK = (
    "local stored = call('HGET', K.instance(), F.format) if stored ~= V.format and stored ~= V.format_of_groups then"
    " fail(E.FORMAT_MISMATCH, {found = stored, expected = V.format}) end"
)
#: The same in a script that may wake a coordinator (lua/lib/timetable.lua): whether one rests costs no call of its own.
_FORMAT_AND_REST_CHECK = (
    "local stored = call('HMGET', K.instance(), F.format, F.resting)"
    " if stored[1] ~= V.format and stored[1] ~= V.format_of_groups then"
    " fail(E.FORMAT_MISMATCH, {found = stored[1], expected = V.format}) end"
    " if stored[2] then resting.mode = stored[2] end"
)
_REST_FIELD = "F.resting"
#: What that check needs of the include.
_REST = "resting"
#: `open` makes the format; `read_news` tells of each of many instances whether it has it.
_UNCHECKED = frozenset({"open", "read_news"})
#: Scripts that a node of a cluster is also sent without a key: then the first instance that the arguments name gives
#: the tag.
_KEYLESS = {"read_news": " or '{' .. ARGV[3] .. '}'"}
#: Scripts that come to the keys of a queue by `load_queue` first, which ends its open run (lua/queues/lib/open_run),
#: or add to that run and take out of it. All others that write have `closed_queue` in the names of a queue's keys.
LOADING = frozenset({"publish", "settle", "sweep", "take"})
_CLOSED = "closed_queue("
#: The files that end open runs themselves.
_ENDING = ("lua/queues/lib/open_run.lua:", "lua/queues/lib/closed_queue.lua:")
#: The room whose scripts run while an instance has no format: they look at how far its upgrade is.
_UPGRADE = "upgrade/"


class ComposeError(Exception):
    """A Lua file cannot be composed: the text starts with its place, ``lua/delivery/take.lua:12``."""


@dataclass(frozen=True, slots=True)
class ComposedScript:
    """One script with its text.

    Attributes:
        name: its verb, the file's name.
        source: what the server runs.
        sha: SHA1 of the source, as EVALSHA takes it.
        only_reads: its flags say that it writes nothing; the server sees to it.
        arguments: the ARGV names in order; the last may end in ``...``.
        fails: the codes that it may refuse with.
        meaning: the head's first line.
        gives: what it returns.
        where: for each line of the source, the file and line it came from.
    """

    name: str
    source: str
    sha: str
    only_reads: bool
    arguments: tuple[str, ...]
    fails: tuple[str, ...]
    meaning: str
    gives: str
    where: tuple[str, ...] = field(repr=False)

    def place(self, line: int) -> str:
        """Tell which file and line stand behind a line of the composed source."""
        return self.where[line - 1] if 0 < line <= len(self.where) else f"{self.name}.lua"


@dataclass(frozen=True, slots=True)
class Script:
    """One script as a client calls it.

    Attributes:
        name: its verb, the file's name.
        sha: SHA1 of its text, as EVALSHA takes it.
        only_reads: its flags say that it writes nothing; the server sees to it.
    """

    name: str
    sha: str
    only_reads: bool

    @property
    def source(self) -> str:
        """Compose what the server runs, once a process.

        Raises:
            ReleaseReplaced: the files are not those any more of which the SHA1 was made.
        """
        composed = self._as_released()
        if composed is None:
            raise ReleaseReplaced(
                f"the script {self.name} has another text on the disk than the one whose SHA1 this process calls: "
                "another release was installed beneath it, so start it again; or files were edited, so run "
                "`python tests/library_hash.py` in the checkout"
            )
        return composed.source

    def place(self, line: int) -> str:
        """Tell which file and line stand behind a line of its text; no line, where the files have changed."""
        composed = self._as_released()
        return f"{self.name}.lua" if composed is None else composed.place(line)

    def _as_released(self) -> ComposedScript | None:
        try:
            composed = _composed(self.name)
        except (ComposeError, OSError):
            return None
        return composed if composed.sha == self.sha else None


class _SourceLine(NamedTuple):
    text: str
    place: str


class _Definition(list[_SourceLine]):
    """The lines of a function or a variable, and the words that they use, found once."""

    @cached_property
    def words(self) -> frozenset[str]:
        """All of their words."""
        return frozenset(_WORD.findall("\n".join([line.text for line in self])))

    @cached_property
    def called(self) -> frozenset[str]:
        """Words of them that are called without arguments, as nests are."""
        return frozenset(_CALLED.findall("\n".join([line.text for line in self])))


@dataclass(slots=True)
class _File:
    path: str
    meaning: str = ""
    head: dict[str, str] = field(default_factory=dict)
    includes: list[str] = field(default_factory=list)
    functions: dict[str, _Definition] = field(default_factory=dict)
    body: _Definition = field(default_factory=_Definition)


#: All that can be reached, in the order of definition: functions and variables as their lines, nests as their files.
_Defined = dict[str, _Definition | _File]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_include(path: str) -> bool:
    return "lib" in path.split("/")[:-1]


@cache
def _folder() -> Traversable:
    folder = Path(import_module("ampsq.lua").__path__[0])
    if folder.is_dir():
        return folder
    # Where packages stand in an archive. It brings all that packs and unpacks files, which takes as long as a script.
    from importlib import resources  # noqa: PLC0415

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
            # To ask the disk of each of the many files would take as long as reading some.
            if not file.name.endswith(".lua"):
                folders += [(f"{folder}{file.name}/", file)] if file.is_dir() else []
            else:
                name = file.name.removesuffix(".lua")
                path = f"{folder}{name}"
                known = includes if _is_include(path) else scripts
                if name in known:
                    raise ComposeError(f"lua/{path}.lua: lua/{known[name]}.lua has the same name")
                known[name] = path
    return scripts, includes


def _parse(path: str, text: str) -> _File:
    file, function, is_include = _File(path), None, _is_include(path)
    for number, raw in enumerate(text.splitlines(), 1):
        place = f"lua/{path}.lua:{number}"
        if raw.startswith(_HEADED) and (head := _HEAD.match(raw)):
            if head[1] == "@include":
                file.includes += _split(head[3])
            elif head[1]:
                file.head[head[1]] = head[3]
            else:
                file.meaning = head[3]
            continue
        if not (code := raw.lstrip()) or code.startswith("--"):
            continue
        if not is_include:
            file.body.append(_SourceLine(raw, place))
            continue
        if variable := _VARIABLE.match(raw):
            file.functions[variable[1]] = _Definition([_SourceLine(raw, place)])
            continue
        if start := _FUNCTION.match(raw):
            function = file.functions.setdefault(start[1], _Definition())
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


def _wanted(defined: _Defined, body: _Definition, around: frozenset[str]) -> set[str]:
    """The names that a body reaches, without those around it and without what only its nests need."""
    wanted: set[str] = set()
    known = defined.keys() - around
    open_definitions = [body]
    while open_definitions:
        definition = open_definitions.pop()
        for word in (definition.words & known) - wanted:
            found = defined[word]
            # A nest is used where it is called: its name may be a variable's elsewhere.
            if isinstance(found, _Definition):
                open_definitions.append(found)
            elif word not in definition.called:
                continue
            wanted.add(word)
    return wanted


def _reached(defined: _Defined, body: _Definition, around: frozenset[str]) -> list[_SourceLine]:
    """The definitions that a body reaches, in their order, without those around it; nests with theirs inside."""
    wanted = _reached_names(defined, body, around)
    known, lines = around | wanted, []
    for name, found in defined.items():
        if name in wanted:
            lines += found if isinstance(found, _Definition) else _nest(name, found, defined, known)
    return lines


def _reached_names(defined: _Defined, body: _Definition, around: frozenset[str]) -> set[str]:
    wanted = _wanted(defined, body, around)
    # What several nests have inside stands beside them, once: a script's length is work for the server, too.
    inner = Counter(name for nest in _nests(defined, wanted) for name in _nested(nest, defined, around | wanted))
    return wanted | {name for name, number in inner.items() if number > 1}


def _all_reached(defined: _Defined, body: _Definition) -> set[str]:
    """The names that a body reaches, those within nests, too."""
    found, open_definitions = set[str](), [body]
    while open_definitions:
        definition = open_definitions.pop()
        for word in (definition.words & defined.keys()) - found:
            inside = defined[word]
            if isinstance(inside, _File):
                if word not in definition.called:
                    continue
                inside = _Definition([_table(inside)])
            found.add(word)
            open_definitions.append(inside)
    return found


def _nests(defined: _Defined, names: Iterable[str]) -> list[_File]:
    return [found for name in names if isinstance(found := defined[name], _File)]


def _nested(file: _File, defined: _Defined, around: frozenset[str]) -> set[str]:
    """The nests within a nest, at any depth."""
    names: set[str] = set()
    open_files = [file]
    while open_files:
        inside = _wanted(defined, _Definition([_table(open_files.pop())]), around)
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


def _nest(name: str, file: _File, defined: _Defined, around: frozenset[str]) -> list[_SourceLine]:
    """A file as one function that returns a table of the file's functions."""
    table = _table(file)
    return [
        _SourceLine(f"local function {name}()", table.place),
        *_reached(defined, _Definition([table]), around),
        table,
        _SourceLine("end", table.place),
    ]


@cache
def _fold(line: _SourceLine, *, closes: bool = False) -> str:
    """Put the literals of the schema in place of their names; kept, since most lines are in many scripts.

    Args:
        line: to be folded.
        closes: of a script that ends a queue's open run before it comes to any key of that queue.
    """
    closes = closes and not line.place.startswith(_ENDING)

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
        text = _fold_last_key(text, line.place, closes=closes)
    return text


def _fold_last_key(text: str, place: str, *, closes: bool) -> str:
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
    suffix = schema.KEYS[name].suffix
    parts = suffix.replace(">", "<").split("<")
    given = [argument.strip() for argument in arguments if argument.strip()]
    if len(given) != len(parts) // 2:
        raise ComposeError(f"{place}: K.{name} takes {len(parts) // 2} parameters, got {len(given)}")
    pieces = [f"'{part}'" if i % 2 == 0 else given[i // 2] for i, part in enumerate(parts) if part]
    start = "P"
    if closes and suffix.startswith(schema.KEYS["queue"].suffix):
        start, pieces = f"closed_queue({given[0]})", pieces[2:]
    return f"{before}({' .. '.join([start, *pieces])}){rest[end:]}"


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


def compose(name: str, *, shebang: bool = True) -> ComposedScript:
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


def compose_text(name: str, text: str) -> ComposedScript:
    """Compose a script that is no file of ``lua/``, with its includes; for tests.

    Raises:
        ComposeError: as of `compose`.
    """
    with _ONE_AT_A_TIME:
        return _compose(_parse(name, text), shebang=True)


class LibraryScript(NamedTuple):
    """One script of a library, as lines with their places, its names folded into literals.

    Attributes:
        flags: as the server knows them.
        names: gives the functions that it uses their names; stands in front of it.
        forgetting: makes anew the variables that it reaches, as far as calls before it used them; but not those that
            every script reaches through nests alone.
        body: checks of rights and of the instance's format, the names of its arguments, and what it does.
    """

    flags: list[str]
    names: list[tuple[str, str]]
    forgetting: list[str]
    body: list[tuple[str, str]]


class Library(NamedTuple):
    """Scripts that share their includes.

    Attributes:
        includes: what they reach of each, as lines: its functions are in the table `libs` under its noun, and what is
            called as a nest is in `nests`. Both tables are to stand in front of them, and `nested`, which a nest sets.
        forgetting: makes anew what was used within nests; due where `nested` is set.
        scripts: by their verbs.
    """

    includes: list[tuple[str, str]]
    forgetting: list[str]
    scripts: dict[str, LibraryScript]


def compose_library(verbs: Iterable[str]) -> Library:
    """Compose some scripts as one library, which has each function once; raises as `compose`."""
    with _ONE_AT_A_TIME:
        return _compose_library({verb: _read(_path(verb)) for verb in verbs})


def _compose_library(mains: dict[str, _File]) -> Library:
    alone = {verb: _defined_by(main) for verb, main in mains.items()}
    checks = {verb: _format_check(main, alone[verb]) for verb, main in mains.items()}
    bodies = {verb: _Definition([*checks[verb], *main.body]) for verb, main in mains.items()}
    reached = {verb: _all_reached(alone[verb], body) for verb, body in bodies.items()}
    all_reached = set[str]().union(*reached.values())
    files = _included_by(*mains.values())
    # Variables stand in front, each once: they are made anew between calls, so that nobody may have a copy of one.
    variables = {
        name: lines
        for file in files
        for name, lines in file.functions.items()
        if name in all_reached and _VARIABLE.match(lines[0].text)
    }
    lines = _folded([line for found in variables.values() for line in found])
    homes: dict[str, str] = {}
    nouns = {name for verb in mains for name in reached[verb] if isinstance(alone[verb][name], _File)}
    for file in files:
        functions = {name: each for name, each in file.functions.items() if name in all_reached - variables.keys()}
        noun, start = file.path.rpartition("/")[2], _start(file)
        if not functions:
            continue
        whole = _Definition([line for each in functions.values() for line in each])
        table = ", ".join(f"{name} = {name}" for name in functions)
        lines += [("do", start), *_names_used(whole, homes, functions.keys(), all_reached, start), *_folded(whole)]
        lines += [(f"libs.{noun} = {{{table}}}", start)]
        if noun in nouns:
            lines += [(f"nests.{noun} = function() nested = true return libs.{noun} end", start)]
            homes[noun] = "nests"
        lines += [("end", start)]
        homes |= dict.fromkeys(functions, f"libs.{noun}")
    forgotten = [name for name, found in variables.items() if not _is_kept(found)]
    direct = {name for verb in mains for name in _wanted(alone[verb], bodies[verb], frozenset())}
    scripts = {}
    for verb, main in mains.items():
        start, body = _start(main), _folded(main.body)
        asked = _rights_asked(main, _folded(_reached(alone[verb], bodies[verb], frozenset())) + body)
        scripts[verb] = LibraryScript(
            _split(main.head.get("FLAGS", "")),
            _names_used(bodies[verb], homes, (), all_reached, start),
            _forgetting(name for name in forgotten if name in direct & reached[verb]),
            [*asked, *_folded(checks[verb]), *_bind(main.head, start), *body],
        )
    return Library(lines, _forgetting(name for name in forgotten if name not in direct), scripts)


def _forgetting(variables: Iterable[str]) -> list[str]:
    """The lines that make variables anew; tables that were not touched stay."""
    return [f"if next({name}) ~= nil then {name} = {{}} end" for name in variables]


def _is_kept(variable: _Definition) -> bool:
    found = _VARIABLE.match(variable[0].text)
    return found is not None and bool(found[2])


def _names_used(
    definition: _Definition, homes: dict[str, str], own: Collection[str], reached: set[str], start: str
) -> list[tuple[str, str]]:
    """Lines that give what lines use of the files before their own names.

    Args:
        definition: the lines.
        homes: the table in which each name is.
        own: names that the lines define themselves.
        reached: names that anybody uses.
        start: the place of these lines.
    """
    used = sorted((definition.words & homes.keys() & reached) - set(own))
    called = definition.called
    return [
        (f"local {name} = {homes[name]}.{name}", start) for name in used if homes[name] != "nests" or name in called
    ]


def _included_by(*mains: _File) -> list[_File]:
    """All that some scripts include, each behind what it includes itself."""
    done: dict[str, _File] = {}
    defined: _Defined = {}
    for main in mains:
        _includes(main, (main.path,), done, defined)
    return list(done.values())


def _defined_by(*mains: _File) -> _Defined:
    """All that some scripts include."""
    done: dict[str, _File] = {}
    defined: _Defined = {}
    for main in mains:
        _includes(main, (main.path,), done, defined)
    return defined


def _start(main: _File) -> str:
    return f"lua/{main.path}.lua:1"


def _folded(lines: Iterable[_SourceLine], *, closes: bool = False) -> list[tuple[str, str]]:
    # Most lines have nothing to fold, and to search each takes as long as all else.
    return [
        (_fold(line, closes=closes) if _has_folded(line.text) else line.text.rstrip(), line.place) for line in lines
    ]


def _only_reads(main: _File) -> bool:
    return "no-writes" in _split(main.head.get("FLAGS", ""))


def _closing(main: _File, lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The lines that end open runs of queues, where others use them; they stand in front of all functions."""
    if not any(_CLOSED in text for text, _ in lines):
        return []
    start = _start(main)
    asked = _Definition([_SourceLine(_CLOSED, start)])
    return _folded(_reached(_defined_by(_File("", includes=["closed_queue"])), asked, frozenset()))


def _path(name: str) -> str:
    path = _paths()[0].get(name)
    if path is None:
        raise ComposeError(f"lua/: no script has the name {name}")
    return path


def _verb(main: _File) -> str:
    return main.path.rpartition("/")[2]


def _format_check(main: _File, defined: _Defined) -> list[_SourceLine]:
    if _verb(main) in _UNCHECKED or main.path.startswith(_UPGRADE):
        return []
    check = _FORMAT_AND_REST_CHECK if _REST in defined else _FORMAT_CHECK
    if fields := main.head.get("READS"):
        if check is _FORMAT_CHECK:
            raise ComposeError(f"{_start(main)}: what it READS is read with the field `resting`: include timetable")
        check = check.replace(_REST_FIELD, f"{_REST_FIELD}, {fields}", 1)
    return [_SourceLine(check, _start(main))]


def _rights_asked(main: _File, lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The lines that ask for the rights of what a script calls; one that writes nothing leaves nothing half done."""
    if _only_reads(main) and _verb(main) not in ADMINISTERING:
        return []
    source = "\n".join(text for text, _ in lines)
    return [(text, _start(main)) for text in rights_asked(_verb(main), source)]


def check_limits(name: str) -> None:
    """Look whether a script is close to Lua's limits of local variables and upvalues; for tests, it takes 10 ms.

    Raises:
        ComposeError: it is too close.
    """
    with _ONE_AT_A_TIME:
        _check_limits(_read(_path(name)))


def _check_limits(main: _File) -> None:
    defined = _defined_by(main)
    names = _reached_names(defined, _Definition([*_format_check(main, defined), *main.body]), frozenset())
    _check_locals(main.path, len(names) + len(_split(main.head.get("ARGV", ""))) + _number_of_locals(main.body))
    for name in names:
        found = defined[name]
        if isinstance(found, _Definition):
            _check_upvalues(found, found.words & names)
            continue
        inner = _reached_names(defined, _Definition([_table(found)]), frozenset(names))
        _check_locals(found.path, len(inner))
        for each in inner:
            if isinstance(within := defined[each], _Definition):
                _check_upvalues(within, within.words & (names | inner))
        nest = _Definition(_nest(name, found, defined, frozenset(names)))
        _check_upvalues(nest, nest.words & (names - {name}))


def _number_of_locals(lines: Iterable[_SourceLine]) -> int:
    found = [match for line in lines if (match := _LOCALS.match(line.text))]
    return sum(1 if match[1] else len(match[2].split(",")) for match in found)


def _check_locals(path: str, number: int) -> None:
    if number > _MOST_LOCALS:
        raise ComposeError(
            f"lua/{path}.lua: {number} local variables with all functions that it includes; at most {_MOST_LOCALS}, "
            "since Lua takes 200 in one function: write an include that few calls need as `name()`, and call what is "
            "in it as `name().function`"
        )


def _check_upvalues(function: _Definition, used: Collection[str]) -> None:
    # `call`, and `P`, in which all keys begin.
    number = len(used) + 2
    if number > _MOST_UPVALUES:
        raise ComposeError(
            f"{function[0].place}: {number} functions and variables of other files are used in this function; at most "
            f"{_MOST_UPVALUES}, since Lua takes 60 upvalues: divide it"
        )


def _compose(main: _File, *, shebang: bool) -> ComposedScript:
    defined = _defined_by(main)
    check = _format_check(main, defined)
    closes = not _only_reads(main) and _verb(main) not in LOADING
    reached = _folded(_reached(defined, _Definition([*check, *main.body]), frozenset()), closes=closes)
    body = _folded(main.body, closes=closes)
    closing = _closing(main, reached + body)
    asked = _rights_asked(main, closing + reached + body)
    flags, start = ",".join(_split(main.head.get("FLAGS", ""))), _start(main)
    head = [f"#!lua flags={flags}" if flags else "#!lua"] if shebang else []
    # The functions stand inside another one, so that these two are its upvalues: making a closure looks through all
    # open variables of the frame for each that it uses, and the oldest are found last (2 us with 60 functions).
    prefix = f"local P = KEYS[1]{_KEYLESS.get(_verb(main), '')}"
    head += ["local call = redis.call", prefix, f"local only_reads = {str(_only_reads(main)).lower()}"]
    lines = (
        [(text, start) for text in head]
        + closing
        + [("local function main()", start)]
        + reached
        + asked
        + _folded(check)
        + _bind(main.head, start)
        + body
    )
    lines += [("end", start), ("return main()", start)]
    source = "\n".join(text for text, _ in lines) + "\n"
    return ComposedScript(
        name=_verb(main),
        source=source,
        sha=hashlib.sha1(source.encode()).hexdigest(),  # noqa: S324  (Redis names scripts by SHA1)
        only_reads=_only_reads(main),
        arguments=tuple(_split(main.head.get("ARGV", ""))),
        fails=tuple(_split(main.head.get("FAIL", ""))),
        meaning=main.meaning,
        gives=main.head.get("GIVES", ""),
        where=tuple(place for _, place in lines),
    )


@cache
def _composed(name: str) -> ComposedScript:
    return compose(name)


@cache
def script(name: str) -> Script:
    """Return the script of that name; it is composed for that only where the release does not tell its SHA1.

    Raises:
        ComposeError: there is no such script, or it cannot be composed.
    """
    found = _released().get(name)
    if found is None:
        composed = _composed(name)
        found = Script(name, composed.sha, composed.only_reads)
    return found


@cache
def _released() -> Mapping[str, Script]:
    """The scripts of this release; none in a checkout where something of which they are composed was changed."""
    # Late: who writes the module reads this one first.
    from ampsq.protocol.released_scripts import READING, SHA1S, SOURCES  # noqa: PLC0415

    if _is_checkout() and sources_hash() != SOURCES:
        return {}
    return {name: Script(name, sha, name in READING) for name, sha in SHA1S.items()}


def _is_checkout() -> bool:
    """Return whether the scripts stand beside the package, where they are edited, and not in it as installed."""
    folder = _folder()
    return isinstance(folder, Path) and folder.parent != Path(__file__).parents[1]


def sources_hash() -> str:
    """Hash all that scripts are composed of: their files, the composer, and the literals of the schema; takes 4 ms."""
    folder, here = str(_folder()), Path(__file__).parent
    digest = hashlib.blake2b(digest_size=32)
    for path in sorted(_lua_files(folder)):
        # A Path for each would take as long as all else.
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            text = file.read()
        digest.update(f"{path.removeprefix(folder)} {len(text)}\n".encode())
        digest.update(text)
    for module in ("scripts.py", "script_rights.py"):
        digest.update((here / module).read_bytes())
    keys = {name: key.suffix for name, key in schema.KEYS.items()}
    folded = [sorted(table.items()) for table in (keys, schema.FIELDS, schema.VALUES, _CODES)]
    digest.update(repr(folded).encode())
    return digest.hexdigest()


def _lua_files(folder: str) -> Iterator[str]:
    for where, _, files in os.walk(folder):
        # An editor's files of its own begin with a dot.
        yield from [f"{where}/{name}" for name in files if name.endswith(".lua") and not name.startswith(".")]


def names() -> list[str]:
    """The names of all scripts, sorted."""
    with _ONE_AT_A_TIME:
        return sorted(_paths()[0])
