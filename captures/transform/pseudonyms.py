"""Pseudonyms: other names, addresses and contents of the same length, always the same ones for the same salt.

A *name* (a topic, a group, a member, a host ...) is replaced word by word, a word being a run of letters and digits:
small letters become small letters, digits digits, and everything between stays. So what is valid stays valid, a member
id goes on beginning with its client's id, and a prefix or a pattern goes on matching. One name is replaced alike
wherever it stands, whatever it names there.

An *address* keeps its kind (loopback, private, documentation, public), the number of digits of each of its parts, and
neighbours: hosts of one network stay in one network.

*Content* (keys, values and headers of records) keeps only its length, and whether it was text.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
from functools import lru_cache

from ...decoder.embedded import INTERNAL
from .permutations import Permutation

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"(?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\.?\w)"
IPV6 = rf"(?<![\w:.])(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}(?:{_OCTET}(?:\.{_OCTET}){{3}}|[0-9A-Fa-f]{{0,4}})(?![\w:])"
_WORD = r"[A-Za-z0-9\u00a0-\U0010ffff]+"
_NAME = re.compile(rf"(?P<six>{IPV6})|(?P<four>{IPV4})|(?P<word>{_WORD})")
_LOCATION = re.compile(rf"(?P<kept>[A-Za-z][\w+]*://|(?<=[\w\]]):\d{{1,5}}(?!\w))|{_NAME.pattern}")
_PATTERN = re.compile(rf"(?P<kept>\\.)|{_NAME.pattern}", re.S)
_PRINCIPAL = re.compile(r"(User|Group|Host|Role):")

KEPT = frozenset({"localhost", "kafka-cluster", "ANONYMOUS", "<default>", *INTERNAL})
"""Names that are Kafka's own, and identify nobody."""

_SALT = b"barnabas pseudonyms 1"
_SHORT = 8  # contents up to here are permuted, so that no two become the same; above, a hash is wide enough
_LETTERS = bytes(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[i & 63] for i in range(256))
_PRINTABLE = bytes(range(0x20, 0x7F))
# (first code point, how many): characters of one length in UTF-8, each range permuted in itself
_RANGES = ((0x61, 26), (0x41, 26), (0x30, 10), (0xA0, 0x760), (0x800, 0xD000), (0xE000, 0x2000), (0x10000, 0x100000))

_MAPPED = bytes(10) + b"\xff\xff"
_NAT64 = bytes.fromhex("0064ff9b")  # RFC 6052 and RFC 8215
# Special addresses: (octets, how many of them mark the range).
_SPECIAL = (
    (lambda o: o[0] in (0, 127) or o[0] >= 224 or o[:3] == (192, 0, 0), 4),
    (lambda o: o[0] == 10, 1),
    (lambda o: o[0] == 172 and 16 <= o[1] <= 31, 2),
    (lambda o: o[0] == 100 and 64 <= o[1] <= 127, 2),
    (lambda o: o[:2] in ((192, 168), (169, 254), (198, 18), (198, 19)), 2),
    (lambda o: o[:3] in ((192, 0, 2), (198, 51, 100), (203, 0, 113)), 3),
)


class Pseudonyms:
    """Pseudonyms under one salt; without one, under a random one that is not kept.

    `replaced` has every name that was replaced so far, with what it became, up to `MOST` of them.
    """

    MOST = 200_000

    def __init__(self, salt: bytes | None = None) -> None:
        # A salt that a person thought of is slow to guess.
        self._key = hashlib.scrypt(salt, salt=_SALT, n=1 << 14, r=8, p=1, dklen=32) if salt else secrets.token_bytes(32)
        self._permutation = Permutation(self._key)
        self.replaced: dict[str, str] = {}
        self.contents: dict[bytes, None] = {}
        self._word = lru_cache(1 << 16)(self._other_word)
        self._short = lru_cache(1 << 16)(self._other_short)
        self.address = lru_cache(1 << 14)(self._other_address)

    # names

    def name(self, text: str, pattern: re.Pattern[str] = _NAME, note: bool = True) -> str:
        """Another name of the same length in UTF-8; `note`: remember that it was replaced."""
        if text in KEPT:
            return text
        known = self.replaced.get(text)
        if known is not None and pattern is _NAME:
            return known
        made = pattern.sub(self._part, text)
        if note and made != text and len(self.replaced) < self.MOST:
            self.replaced[text] = made
        return made

    def location(self, text: str) -> str:
        """A host, or a URL or `host:port` with it: scheme and port stay."""
        return self.name(text, _LOCATION)

    def regex(self, text: str) -> str:
        """A regular expression over names, which goes on matching what the names become."""
        return self.name(text, _PATTERN)

    def principal(self, text: str) -> str:
        """``User:alice``; ``User:*`` stays."""
        head = _PRINCIPAL.match(text)
        return head[0] + self.name(text[head.end() :]) if head else self.name(text)

    def _part(self, found: re.Match[str]) -> str:
        text = found[0]
        kind = found.lastgroup
        if kind == "kept":
            return text
        if kind == "word":
            return text if text in KEPT else self._word(text)
        return self.address(text)

    def _other_word(self, word: str) -> str:
        ranges = [next(r for r in _RANGES if r[0] <= ord(c) < r[0] + r[1]) for c in word]
        number, size = 0, 1
        for character, (first, count) in zip(word, ranges, strict=True):
            number = number * count + ord(character) - first
            size *= count
        number = self._permutation.other(number, size, b"word" + bytes(_RANGES.index(r) for r in ranges))
        out = []
        for first, count in reversed(ranges):
            number, rest = divmod(number, count)
            out.append(chr(first + rest))
        return "".join(reversed(out))

    # addresses

    def _other_address(self, text: str) -> str:
        """Another IP address, as text of the same length; what is none is taken as a name."""
        try:
            found = ipaddress.ip_address(text)
        except ValueError:
            return re.sub(_WORD, lambda word: self._word(word[0]), text)
        if isinstance(found, ipaddress.IPv4Address):
            return ".".join(map(str, self._other_ipv4(tuple(found.packed))))
        if found.is_loopback or found.is_unspecified or found.is_multicast:
            return text
        if "." in text:
            head, _, tail = text.rpartition(":")
            return f"{head}:{self._other_address(tail)}"
        if found.ipv4_mapped is not None:
            return self._other_mapped(text, tuple(found.ipv4_mapped.packed))
        return self._other_ipv6(text, found)

    def packed(self, address: bytes) -> bytes:
        """The same for the 4 or 16 bytes of an address; other lengths are content."""
        if len(address) not in (4, 16):
            return self.content(address)
        if address.startswith(_MAPPED) and len(address) == 16:
            return _MAPPED + self.packed(address[12:])
        return ipaddress.ip_address(self.address(str(ipaddress.ip_address(address)))).packed

    def _other_ipv4(self, octets: tuple[int, ...]) -> tuple[int, ...]:
        kept = _special(octets)
        while True:
            new = octets[:kept]
            for at in range(kept, 4):
                first, count = next(r for r in ((0, 10), (10, 90), (100, 156)) if octets[at] < r[0] + r[1])
                number = self._permutation.other(octets[at] - first, count, b"ip" + bytes(octets[:at]))
                new = (*new, first + number)
            if _special(new) == kept:
                return new
            octets = new  # a public address must not become a special one

    def _other_mapped(self, text: str, octets: tuple[int, ...]) -> str:
        """An IPv4 address in an IPv6 address, written as such: the same other address as it has alone, if it is as long."""
        head, *groups = text.rsplit(":", 2)
        if _special(octets) == len(octets):
            return text
        digits = [len(f"{value:x}") for value in _halves(octets)]
        while True:
            octets = self._other_ipv4(octets)
            if [len(f"{value:x}") for value in _halves(octets)] == digits:
                return ":".join((head, *map(_written, _halves(octets), groups)))

    def _other_ipv6(self, text: str, address: ipaddress.IPv6Address) -> str:
        # The first group is the kind of address, but for global ones and for the local part of 64:ff9b::/32.
        unicast = address.packed[0] >> 5 == 1
        kept = (2 if address.is_private else 0) if unicast else 3 if address.packed.startswith(_NAT64) else 1
        while True:
            text = self._other_groups(text, kept)
            if ipaddress.IPv6Address(text).is_private == address.is_private:
                return text

    def _other_groups(self, text: str, kept: int) -> str:
        out = []
        for at, group in enumerate(text.split(":")):
            value = int(group or "0", 16)
            if at < kept or not value:
                out.append(group)
                continue
            first = 0x2000 if at == 0 else 1 << (value.bit_length() - 1) // 4 * 4
            count = 0x2000 if at == 0 else first * 15
            value = first + self._permutation.other(value - first, count, b"ip6" + bytes((at,)))
            out.append(_written(value, group))
        return ":".join(out)

    # content

    def content(self, data: bytes) -> bytes:
        """Other bytes of the same length: text for text. Long ones repeat themselves, so that they can be compressed
        as well as what they stand for."""
        if not data:
            return data
        if len(self.contents) < self.MOST // 10 and len(data) >= 4:
            self.contents[data[:64]] = None
        if len(data) <= _SHORT:
            return self._short(data)
        digest = hashlib.blake2b(data, key=self._key, digest_size=48).digest()
        if _is_text(data):
            digest = digest.translate(_LETTERS)
        return (digest * (len(data) // 48 + 1))[: len(data)]

    def _other_short(self, data: bytes) -> bytes:
        length = len(data)
        if _is_text(data):
            number = 0
            for byte in data:
                number = number * 95 + byte - 0x20
            number = self._permutation.other(number, 95**length, b"text")
            out = bytearray()
            for _ in range(length):
                number, rest = divmod(number, 95)
                out.append(0x20 + rest)
            return bytes(reversed(out))
        while True:
            number = self._permutation.other(int.from_bytes(data, "big"), 256**length, b"bytes")
            data = number.to_bytes(length, "big")
            if not _is_text(data):
                return data


def _is_text(data: bytes) -> bool:
    return not data.translate(None, _PRINTABLE)


def _halves(octets: tuple[int, ...]) -> tuple[int, int]:
    """An IPv4 address as two groups of an IPv6 address."""
    return octets[0] << 8 | octets[1], octets[2] << 8 | octets[3]


def _written(value: int, group: str) -> str:
    """A group of an IPv6 address as another one is written."""
    shown = f"{value:0{len(group)}x}"
    return shown.upper() if group != group.lower() else shown


def _special(octets: tuple[int, ...]) -> int:
    """How many octets of an IPv4 address mark it as a special one; 0 for a public one."""
    return next((count for test, count in _SPECIAL if test(octets)), 0)
