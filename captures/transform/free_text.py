"""Free text: error messages, reasons, settings, comments. Words that are Kafka's or plain English stay, so that a
message can still be understood; every other word counts as a name and is replaced as one.

The words that stay are those of this package's own texts and schema; a name that was replaced elsewhere before is replaced
here too, whatever it looks like.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from ...decoder.embedded import names
from ...decoder.reference import explanations
from ...decoder.schema import facts
from .pseudonyms import IPV4, IPV6, KEPT, Pseudonyms

_TOKEN = re.compile(r"[^\s'\"(),;=\[\]{}<>|`]+")
_ADDRESS = re.compile(rf"{IPV6}|{IPV4}")
_PIECE = re.compile(r"[^:/@]+")
_LETTERS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:ms|s|%|MB|KB|B)?")
_PLAIN = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*")
_ENDS = ".,!?:-"

# Explanations that use the words of brokers and clients. Descriptions of fields are no such text: each further word that stays may
# be a name somewhere.
_TEXTS = ("apis.txt", "errors.txt", "kips.txt", "settings.txt", "settings_in_clear.txt", "values.txt")
# Words of brokers and clients beside those of the texts here.
_MORE = """
    a an and any are as at be been but by can cannot could do does for from had has have if in into is it its no not of
    on or out so such than that the their then there these this to too was were when where which while will with would
    expected actual exceeded exception error failed failure found invalid illegal missing unexpected unable unsupported
    java org apache common errors kafka server runtime null true false none config policy hard quota rebalance consumer
    producer unsubscribed closed poll timeout expired leaving group triggered followup assigned reassigned barnabas
    answered hit changed rule bytes lost proxy cooperative sticky range roundrobin uniform plaintext ssl sasl internal
    present absent read write alter describe create idempotent external controller replication delete compact gzip snappy zstd uncompressed
"""


@cache
def vocabulary() -> frozenset[str]:
    """The words that stay, in small letters."""
    found = set(_MORE.split())
    for name in _TEXTS:
        text = (resources.files(explanations) / name).read_text("utf-8")
        found.update(word.lower() for word in _LETTERS.findall(text))
    own = (
        [error.name for error in facts.errors().values()] + [facts.api_name(key) for key in facts.api_keys()] + names()
    )
    found.update(word.lower() for name in own for word in _LETTERS.findall(name))
    return frozenset(found)


def is_kafka_word(word: str) -> bool:
    """Whether a word is made of such words alone (``UnknownTopicException``, ``retention.ms``), or is a number."""
    if _NUMBER.fullmatch(word):
        return True
    return bool(_PLAIN.fullmatch(word)) and all(w.lower() in vocabulary() for w in _LETTERS.findall(word))


def scrub_text(text: str, pseudonyms: Pseudonyms) -> str:
    """The text with every word replaced that may be a name; its length stays."""

    def token(found: re.Match[str]) -> str:
        whole = found[0]
        core = whole.rstrip(_ENDS)
        rest = whole[len(core) :]
        if core in KEPT:
            return whole
        if core in pseudonyms.replaced:
            return pseudonyms.replaced[core] + rest
        out, at = [], 0
        for address in _ADDRESS.finditer(core):
            out += [_PIECE.sub(piece, core[at : address.start()]), pseudonyms.address(address[0])]
            at = address.end()
        return "".join([*out, _PIECE.sub(piece, core[at:]), rest])

    def piece(found: re.Match[str]) -> str:
        word = found[0]
        if word in pseudonyms.replaced:
            return pseudonyms.replaced[word]
        if word in KEPT or is_kafka_word(word):
            return word
        return pseudonyms.name(word, note=False)

    return _TOKEN.sub(token, text)
