"""Which settings are credentials, by their names and values."""

from __future__ import annotations

import pytest
from barnabas.decoder.reference.settings import MOST_VALUE, holds_credentials, holds_no_credentials


@pytest.mark.parametrize(
    "value",
    ["password=x", "my_password : x", '"secret"= x', "Server=db;Pwd=x", "AccountKey=x", "sas_token=x",
     "redis://:x@cache", "Authorization: Basic dXNlcjpwYXNz", "bearer abcdefgh", "X-Api-Key: x", "Cookie: s=x",
     "a?v=1&sig=x",     "a?X-Amz-Signature=x", "eyJhbGciOiJIUzI1NiJ9.e30.x", "ghp_abcdefghijkl", "xoxb-abcdefghijkl",
     "AKIA0123456789ABCDEF",
     '{"private_key": "x"}', "--password x", "DB_PASS=x", "<password>x", "jdbc:oracle:thin:scott/x@db:1521",
     "jdbc:postgresql://me:x@db/y", "me:x@db:5432", "-----BEGIN PRIVATE KEY-----", "x" * (MOST_VALUE + 1)],
)  # fmt: skip
def test_values_with_credentials(value: str) -> None:
    assert holds_credentials(value)


@pytest.mark.parametrize(
    "value", ["", "8640000123", "0:1,1:2", "broker-1:9092,broker-2:9092", "SASL_SSL:SASL_SSL", "http://host:80/path",
              "delete", "TLSv1.3", "max tokens", "1@broker-1:9093,2@broker-2:9093", "a basic idea",
              "User:alice;User:bob",
              "org.apache.kafka.server.authorizer.Authorizer", "bypass=true", "compass: north",
              "task-1=x", "x" * MOST_VALUE],
)  # fmt: skip
def test_values_without_credentials(value: str) -> None:
    assert not holds_credentials(value)


@pytest.mark.parametrize(
    ("name", "clear"),
    [("log.retention.ms", True), ("retention.ms", True), ("listener.name.internal.ssl.client.auth", True),
     ("listener.name.x.scram-sha-256.connections.max.reauth.ms", True), ("ssl.keystore.password", False),
     ("sasl.jaas.config", False), ("listener.name.x.plain.sasl.jaas.config", False), ("ssl.truststore.certificates", False),
     ("ldap.bind.pwd", False), ("vendor.setting", False), ("retention.ms" * 1000, False), ("", False)],
)  # fmt: skip
def test_names(name: str, clear: bool) -> None:
    assert holds_no_credentials(name) is clear
