"""Pseudonyms: the same again, never two for one, valid where the original was."""

from __future__ import annotations

import ipaddress
import re
from functools import cache

import pytest
from barnabas.captures.transform.free_text import is_kafka_word, scrub_text
from barnabas.captures.transform.permutations import Permutation
from barnabas.captures.transform.pseudonyms import Pseudonyms
from harness.run.examples import times
from hypothesis import given
from hypothesis import strategies as st

KEPT = [ipaddress.ip_network(n) for n in ("0.0.0.0/8", "127.0.0.0/8", "192.0.0.0/24", "224.0.0.0/3")]


@cache
def names(salt: bytes = b"salt") -> Pseudonyms:
    """Not made while tests are collected: a salt is stretched slowly on purpose."""
    return Pseudonyms(salt)


@cache
def made_again() -> Pseudonyms:
    return Pseudonyms(b"salt")


@pytest.mark.parametrize("size", [2, 3, 10, 95, 1000, 1025, 3000])
def test_a_permutation_gives_every_number_another_one_and_none_twice(size: int) -> None:
    permutation = Permutation(b"key" * 10)
    numbers = [permutation.other(i, size, b"t") for i in range(size)]
    assert sorted(numbers) == list(range(size))
    assert all(number != i for i, number in enumerate(numbers))


@pytest.mark.parametrize("size", [1 << 64, 26**40, 36**249])
def test_large_ranges_are_permuted_without_a_table(size: int) -> None:
    permutation = Permutation(b"key" * 10)
    for number in (0, 1, size // 2, size - 1):
        other = permutation.other(number, size, b"t")
        assert 0 <= other < size
        assert other != number
        assert permutation._backward(permutation._forward(number, size, b"t"), size, b"t") == number


@times(2)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_a_name_keeps_its_length_and_what_stands_between_its_words(name: str) -> None:
    made = names().name(name)
    assert len(made.encode()) == len(name.encode())
    assert made == names().name(name) == made_again().name(name)
    if re.fullmatch(r"[a-zA-Z0-9._-]+", name):
        assert re.fullmatch(r"[a-zA-Z0-9._-]+", made)


def test_names_that_contain_others_still_do() -> None:
    client = names().name("payments-7")
    assert names().name("payments-7-0f3e2a77-1234-4321-aaaa-0123456789ab").startswith(client + "-")
    assert names().name("payments.eu").startswith(names().name("payments"))
    assert re.match(names().regex(r"payments\.(eu|us)\d*"), names().name("payments.eu"))
    assert names().principal("User:payments") == "User:" + names().name("payments")
    assert names().location("http://payments.example:8083/x").startswith("http://" + names().name("payments"))
    assert names().location("payments.example:8083").endswith(":8083")


def test_another_salt_gives_other_names() -> None:
    assert names().name("payments") != names(b"another salt").name("payments")
    assert Pseudonyms().name("payments") != Pseudonyms().name("payments")


@pytest.mark.parametrize(
    "name", ["", "*", "User:*", "localhost", "__consumer_offsets", "kafka-cluster", "127.0.0.1", "::1"]
)
def test_names_that_identify_nobody_stay(name: str) -> None:
    assert names().principal(name) == name


def test_no_two_short_names_become_one() -> None:
    words = [f"c-{i}" for i in range(3000)]
    assert len({names().name(word) for word in words}) == len(words)


@times(2)
@given(st.ip_addresses())
def test_addresses_stay_valid_and_of_their_kind(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    text = str(address)
    made = ipaddress.ip_address(names().address(text))
    assert str(made) == names().address(text)
    assert len(str(made)) == len(text)
    assert made.is_private == address.is_private
    assert made.is_loopback == address.is_loopback
    if isinstance(address, ipaddress.IPv4Address) and not any(address in network for network in KEPT):
        assert made != address
    packed = names().packed(address.packed)
    assert len(packed) == len(address.packed)


@pytest.mark.parametrize(
    "text",
    [
        "::ffff:f41a:f089", "::ffff:c0a8:107", "::FFFF:A01:0203", "::ffff:0:0", "::ffff:b00:5", "::ffff:1764:a05",
        "0:0:0:0:0:ffff:0808:0808",
    ],
)
def test_mapped_addresses_keep_the_kind_of_their_ipv4_address(text: str) -> None:
    before, made = (ipaddress.IPv6Address(each).ipv4_mapped for each in (text, names().address(text)))
    assert before is not None and made is not None
    assert len(names().address(text)) == len(text)
    assert len(str(ipaddress.ip_address(names().address(text)))) == len(str(ipaddress.ip_address(text)))
    assert made.is_private == before.is_private and made.is_reserved == before.is_reserved
    assert (made == before) == any(before in network for network in KEPT)


def test_a_mapped_address_has_the_pseudonym_of_its_ipv4_address() -> None:
    packed = names().packed(ipaddress.IPv6Address("::ffff:203.0.114.200").packed)
    assert ipaddress.IPv6Address(packed).ipv4_mapped == ipaddress.ip_address(names().address("203.0.114.200"))


def test_hosts_of_one_network_stay_together() -> None:
    networks = {names().address(f"10.20.30.{i}").rpartition(".")[0] for i in range(256)}
    assert len(networks) == 1
    assert len({names().address(f"203.1.{i}.9") for i in range(256)}) == 256


def test_content_keeps_its_length_and_no_two_become_one() -> None:
    assert len({names().content(bytes([a, b])) for a in range(256) for b in range(0, 256, 8)}) == 8192
    for data in (b"x", b"key-1", b"\0\0\0\7", b"12345678", b"text of a longer kind" * 9, bytes(range(256))):
        made = names().content(data)
        assert len(made) == len(data)
        assert made != data
        assert made == names().content(data)
        assert (made.isascii() and made.decode().isprintable()) == (data.isascii() and data.decode().isprintable())
    assert names().content(b"") == b""


def test_free_text_keeps_kafkas_words_and_nobodys_names() -> None:
    names = Pseudonyms(b"salt")
    topic = names.name("config")  # a topic that is called like one of Kafka's words
    text = (
        "Topic config of payments-7 at db.example.org:9092 and 10.1.2.3:9093 is not authorized, "
        "partition 12: UnknownTopicOrPartitionException 'alice'."
    )
    made = scrub_text(text, names)
    assert len(made) == len(text)
    assert made.startswith(f"Topic {topic} of {names.name('payments-7')} at {names.name('db.example.org')}:9092 and ")
    assert made.endswith(
        "is not authorized, partition 12: UnknownTopicOrPartitionException '" + names.name("alice") + "'."
    )
    for word in ("payments", "alice", "example", "10.1.2.3", "db."):
        assert word not in made


def test_words_of_kafka() -> None:
    assert all(map(is_kafka_word, ("NOT_LEADER_OR_FOLLOWER", "cooperative-sticky", "retention.ms", "60000", "Produce")))
    assert not any(map(is_kafka_word, ("payments", "alice", "kafka-1", "broker01", "10.0.0.1", "a1b2", "")))
