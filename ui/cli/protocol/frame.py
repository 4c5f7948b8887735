"""Single messages: ``barnabas decode --hex`` and ``barnabas encode``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..common.completion import api_names
from ..common.failure import Failure, value_of
from ..common.output import json_text, print_json, warn

if TYPE_CHECKING:
    from ....decoder import DecodeError, Message
    from ....decoder.present import Presenter


Api = Annotated[
    str, typer.Option("--api", help="The name or key of the message's API.", metavar="API", autocompletion=api_names)
]
ApiVersion = Annotated[
    int | None, typer.Option("--api-version", help="The version of the message; encode uses the newest by default.", metavar="N")
]


def api_key(text: str) -> int:
    """An API's key from its name or number; Failure with the nearest name."""
    from ....decoder.schema import facts

    if text.lstrip("-").isdigit():
        return int(text)
    try:
        key = facts.api_key(text)
    except KeyError as error:
        raise Failure(f"--api: {error.args[0]}") from None
    note_former(text)
    return key


def note_former(text: str) -> None:
    """Print today's name of an API on standard error if this is a former one."""
    from ....decoder.schema import facts

    former = facts.former_name("api", text)
    if former is not None:
        warn([f"{former.name} ({former.where}) is {former.today} today"])


class Draft(NamedTuple):
    """A message that was proposed and never shipped in that form; see `drafts`."""

    name: str
    version: int


def draft_of(text: str, version: int | None) -> Draft | None:
    """The draft of that name, by default in its newest version; None if the name is not that of a draft.

    Raises Failure for a draft that is unknown or lacks the version.
    """
    from ....decoder import UnknownApi
    from ....decoder.reference.definitions import drafts

    if not drafts.is_draft(text):
        return None
    try:
        name = drafts.named(text)
    except UnknownApi as error:
        raise Failure(f"{error.text}; there are {', '.join(drafts.names())}") from None
    known = drafts.versions(name)
    wanted = known.every()[-1] if version is None else version
    if wanted not in known:
        raise Failure(f"{name} has version {known}, not {wanted}")
    return Draft(name, wanted)


def read_hex(text: str) -> bytes:
    """Bytes from hexadecimal text in any layout (spaces, newlines, colons, 0x); ``-`` is standard input."""
    if text == "-":
        text = sys.stdin.read()
    digits = re.sub(r"0x|[\s:,]", "", text)
    try:
        return bytes.fromhex(digits)
    except ValueError:
        wrong = re.search(r"[^0-9a-fA-F]", digits)
        why = f"{wrong[0]!r} is not a hexadecimal digit" if wrong else "an odd number of digits"
        raise Failure(f"--hex: {why}") from None


class MessageSpec(NamedTuple):
    """What is known of a message given as text. `kind`: "request" or "response"; `release`: whose layout it has, where that
    differs."""

    kind: str
    api: str | None
    version: int | None
    body: bool = False
    release: str | None = None


def decode_hex(text: str, wanted: MessageSpec) -> Message:
    """The message in hexadecimal `text`; raises Failure for missing options, DecodeError for a damaged message.

    The 4 size bytes may stand in front: they are left out if they fit.
    """
    from ....decoder.reference.definitions import drafts, previews

    kind, api, version, body, release = wanted
    data = read_hex(text)
    if len(data) >= 4 and int.from_bytes(data[:4], "big") == len(data) - 4 and not body:
        data = data[4:]
    if release is not None:
        with value_of("--release"):
            previews.overlays(release)
    if api is not None and (draft := draft_of(api, version)) is not None:
        return drafts.decode(draft.name, kind, draft.version, data)
    if kind == "request" and not body:
        return previews.decode_request(data, release)
    if api is None or version is None:
        raise Failure(f"a {kind}{' body' if body else ''} does not contain its API: give --api and --api-version")
    if body:
        return previews.decode_body(kind, api_key(api), version, data, release)
    return previews.decode_response(data, api_key=api_key(api), api_version=version, release=release)


def show_frame(text: str, wanted: MessageSpec, form: str, presenter: Presenter) -> None:
    """Print the message in `form`: "json", "tree" or "hexmap". What was read of a damaged one is printed too."""
    from ....decoder import DecodeError, TrailingBytes
    from ....decoder.codec.message import jsonable

    fault: DecodeError | None = None
    try:
        message = decode_hex(text, wanted)
    except TrailingBytes as error:
        fault, message = error, error.message
    except DecodeError as error:
        if error.partial:
            print_json(jsonable(error.partial), indent=2)
        raise
    if form == "hexmap":
        for line in hexmap(message):
            print(line)
    else:
        fields = {**jsonable(message.header), **presenter.message(message)}
        if form == "json":
            print_json(fields)
        else:
            print(f"{message.api} v{message.api_version} {message.plan.kind}")
            for line in tree(fields, api=message.api):
                print(line)
    if fault:
        raise fault


def tree(value: Any, depth: int = 1, api: str = "", field: str = "") -> Iterator[str]:
    """Nested dicts and lists as indented lines. Numbers that have a name have it beside them.

    `api`: whose message it is; `field`: whose value.
    """
    from ....decoder.reference.explain import meaning

    pad = "  " * depth
    for name, item in value.items() if isinstance(value, dict) else ((f"[{i}]", v) for i, v in enumerate(value)):
        if isinstance(item, dict) or (isinstance(item, list) and item):
            yield f"{pad}{name}"
            yield from tree(item, depth + 1, api, name)
        else:
            of = str(name) if isinstance(value, dict) else field
            known = "" if item == 0 and of.endswith("error_code") else meaning(api, of, item)
            yield f"{pad}{name}: {json_text(item)}{f' {known}' if known else ''}"


def hexmap(message: Message) -> Iterator[str]:
    """Every field with its place and bytes, in order."""
    for path, start, end in message.map():
        shown = message.frame[start:end].hex(" ")
        yield f"{start:6} {end - start:6}  {path:<48} {shown if len(shown) <= 95 else shown[:92] + '...'}"


def encode(
    fields: Annotated[
        str, typer.Argument(help="The body as a JSON object; - reads standard input.", metavar="JSON")
    ] = "-",
    api: Api = "",
    api_version: ApiVersion = None,
    response: Annotated[bool, typer.Option("--response", help="A response instead of a request.")] = False,
    correlation_id: Annotated[
        int, typer.Option("--correlation-id", help="The correlation id in the header.", metavar="N")
    ] = 0,
    client_id: Annotated[
        str | None, typer.Option("--client-id", help="The client id in a request's header.", metavar="NAME")
    ] = None,
    body: Annotated[bool, typer.Option("--body", help="A body without a header.")] = False,
    size: Annotated[bool, typer.Option("--size", help="Prefix the 4 size bytes.")] = False,
    binary: Annotated[bool, typer.Option("--binary", help="Write bytes instead of hexadecimal text.")] = False,
) -> None:
    """Encode a message from JSON, as hexadecimal text. Omitted fields take their defaults.

    --api takes former names too, and drafts such as kip-4.DescribeTopic, which have no header.

    Byte fields are given in hexadecimal, UUIDs in Kafka's base64 form or with dashes, records also as
    decode --json --show-values shows them.
    """
    from ....decoder import DecodeError, EncodeError, encode_body, encode_request, encode_response
    from ....decoder.reference.definitions import drafts
    from ....decoder.schema import facts

    if not api:
        raise Failure("which API? Give --api NAME, e.g. --api Metadata")
    kind = "response" if response else "request"
    if (draft := draft_of(api, api_version)) is not None:
        name, wanted = draft
        make = partial(drafts.encode, name, kind, wanted)
    else:
        key = api_key(api)
        try:
            known = facts.api(key)
        except KeyError:
            raise Failure(f"--api: no known release has api key {key}") from None
        name, wanted = known.name, known.versions.every()[-1] if api_version is None else api_version
        if body:
            make = partial(encode_body, kind, key, wanted)
        elif response:
            make = partial(encode_response, key, wanted, correlation_id=correlation_id)
        else:
            make = partial(encode_request, key, wanted, correlation_id=correlation_id, client_id=client_id)
    try:
        given = json.loads(sys.stdin.read() if fields == "-" else fields)
    except ValueError as error:
        raise Failure(f"the fields are not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Failure("the fields must be one JSON object")
    try:
        data = make(given)
    except (EncodeError, DecodeError) as error:
        raise Failure(f"{name} v{wanted} {kind}: {error}") from None
    if size:
        data = len(data).to_bytes(4, "big") + data
    if binary:
        sys.stdout.buffer.write(data)
    else:
        print(data.hex())
