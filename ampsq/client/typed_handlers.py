"""Handlers that ask for data of a type: their signature is read once, each message's body is validated by pydantic.

`def handle(order: Order)` is called with an `Order`; `def handle(order: Order, message: Message)` with the message too.
A handler whose first parameter has no annotation, or is a message, is called with the message, and nothing of this is
on its path.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown
from ampsq.queues.message import MessageView

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import TypeAdapter, ValidationError

__all__ = ["InvalidMessage", "as_handler", "is_of_kind", "is_typed"]

#: Errors of one body that a reason names; the rest is counted.
_ERRORS_NAMED: Final = 5
#: An annotation that cannot be resolved and is a message all the same, as one imported for type checkers alone.
_MESSAGE: Final = re.compile(r"([\w.]+\.)?(Async)?Message( *\| *([\w.]+\.)?(Async)?Message)*")
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class InvalidMessage(Exception):
    """The body of a message does not fit the type that its handler asks for, so that the handler was not called.

    Its text names each field with what is wrong, and none of the values.

    Attributes:
        error: the `ValidationError` of pydantic.
    """

    def __init__(self, type_name: str, error: ValidationError) -> None:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        named = [
            ": ".join(filter(None, (".".join(str(part) for part in each["loc"]), each["msg"])))
            for each in found[:_ERRORS_NAMED]
        ]
        if len(found) > _ERRORS_NAMED:
            named.append(f"and {len(found) - _ERRORS_NAMED} more")
        super().__init__(f"not a valid {type_name}: {'; '.join(named)}")
        self.error = error


def is_of_kind(handler: Callable[..., Any], *tests: Callable[[Any], bool]) -> bool:
    """Ask whether a function, or an object's way of being called, is of a kind."""
    return any(test(handler) or test(getattr(handler, "__call__", None)) for test in tests)  # noqa: B004  (its kind)


class _TypedHandler:
    """A handler that is called with validated data.

    Args:
        handler: the user's.
        adapter: of the type that it asks for.
        type_name: of that, for people.
        message_argument: the name of its parameter that takes the message; "" is none, None its second one by place.
    """

    def __init__(
        self, handler: Callable[..., Any], adapter: TypeAdapter[Any], type_name: str, message_argument: str | None
    ) -> None:
        self._handler, self._adapter = handler, adapter
        self._type_name, self._message_argument = type_name, message_argument

    def __repr__(self) -> str:
        return repr(self._handler)

    def __call__(self, message: MessageView) -> Any:
        """Call the handler; of a coroutine function that gives what is to be awaited.

        Raises:
            InvalidMessage: the body does not fit.
        """
        from pydantic import ValidationError

        try:
            if message.message_type == "json":
                data = self._adapter.validate_json(message.raw)
            else:
                data = self._adapter.validate_python(message.data)
        except ValidationError as error:
            raise InvalidMessage(self._type_name, error) from error
        if self._message_argument:
            return self._handler(data, **{self._message_argument: message})
        return self._handler(data, message) if self._message_argument is None else self._handler(data)


def is_typed(handler: Callable[..., Any]) -> bool:
    """Ask whether `as_handler` made a handler that validates."""
    return isinstance(handler, _TypedHandler)


def as_handler(handler: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return what is called with a message: the handler as it is, or one that gives it data of the type it asks for.

    Raises:
        DefinitionError: it cannot be called with one message, its type cannot be resolved, or pydantic cannot
            validate it.
    """
    if not callable(handler) or is_of_kind(handler, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        raise DefinitionError(f"handler={shown(handler)}: allowed is a function or a coroutine function, no generator")
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        # Of some built-in functions nobody knows.
        return handler
    first = parameters[0] if parameters else None
    if first is None or first.kind not in _POSITIONAL or _is_message(annotation := _annotation(handler, first)):
        _check_signature(handler, parameters[1:] if first is not None and first.kind in _POSITIONAL else parameters)
        return handler
    message_argument: str | None = ""
    for other in parameters[1:]:
        if _takes_message(handler, other):
            message_argument = None if other.kind is inspect.Parameter.POSITIONAL_ONLY else other.name
            parameters.remove(other)
            break
    _check_signature(handler, parameters[1:])
    return _TypedHandler(handler, _adapter(handler, annotation), _type_name(annotation), message_argument)


def _takes_message(handler: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return False
    if parameter.annotation is parameter.empty:
        return parameter.default is parameter.empty
    annotation = _annotation(handler, parameter)
    # One of any type is the user's own, as a default that is bound.
    return annotation is not Any and annotation is not object and _is_message(annotation)


def _check_signature(handler: Callable[..., Any], others: list[inspect.Parameter]) -> None:
    """Refuse a handler that needs more than it is given."""
    missing = [
        each.name
        for each in others
        if each.default is each.empty and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    ]
    if missing:
        raise DefinitionError(
            f"handler={shown(handler)} needs {', '.join(missing)}, which nobody gives it; allowed is a function of the "
            "message, as in handle(message), or of data of a type, as in handle(order: Order) and "
            "handle(order: Order, message: Message); give others a default, or bind them with functools.partial"
        )


def _annotation(handler: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter with its names resolved; `Any` where there is none."""
    if parameter.annotation is parameter.empty:
        return Any
    if isinstance(parameter.annotation, str) and _MESSAGE.fullmatch(parameter.annotation):
        return MessageView
    function: Any = handler
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    names = dict(getattr(function, "__globals__", {}))
    with contextlib.suppress(TypeError, ValueError):
        # Names of functions around it count too.
        names.update(inspect.getclosurevars(function).nonlocals)
    carrier = SimpleNamespace(__annotations__={"data": parameter.annotation})
    try:
        return get_type_hints(carrier, names, include_extras=True)["data"]
    except Exception as error:
        raise DefinitionError(
            f"handler={shown(handler)}: the type of {parameter.name!r}, {parameter.annotation!r}, cannot be resolved: "
            f"{error}; import it where the handler is defined, not under TYPE_CHECKING alone"
        ) from error


def _is_message(annotation: Any) -> bool:
    """Ask whether a parameter of this type takes the message itself."""
    if annotation is Any or annotation is object:
        return True
    kinds = get_args(annotation) or (annotation,)
    return all(isinstance(kind, type) and issubclass(kind, MessageView) for kind in kinds)


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _adapter(handler: Callable[..., Any], annotation: Any) -> TypeAdapter[Any]:
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, NameError) as error:
        raise DefinitionError(
            f"handler={shown(handler)}: data of type {_type_name(annotation)} cannot be validated: {error}; allowed "
            "are models of pydantic, dataclasses, TypedDicts and what else its TypeAdapter takes"
        ) from error
