"""Which settings are credentials, by their names and values."""

from __future__ import annotations

import pytest
from barnabas.decoder.schema.settings import (
    MOST_VALUE,
    holds_credentials,
    holds_no_credentials,
    may_be_credentials,
)


@pytest.mark.parametrize(
    "value",
    ["password=x", "my_password : x", '"secret"= x', "Server=db;Pwd=x", "AccountKey=x", "sas_token=x",
     "redis://:x@cache", "Authorization: Basic dXNlcjpwYXNz", "bearer abcdefgh", "X-Api-Key: x", "Cookie: s=x",
     "a?v=1&sig=x",     "a?X-Amz-Signature=x", "eyJhbGciOiJIUzI1NiJ9.e30.x", "ghp_abcdefghijkl", "xoxb-abcdefghijkl",
     "AKIA0123456789ABCDEF",
     '{"private_key": "x"}', "--password x", "DB_PASS=x", "<password>x", "jdbc:oracle:thin:scott/x@db:1521",
     "mysql -u root -px db", "mysqldump --user=me -px", "sshpass -p x ssh h", "curl -u me:x h", "deploy --token x",
     "run --api-key=x", "https://hooks.slack.com/services/x", "discord.com/api/webhooks/1/x", "sk_live_abcdefgh",
     "https://h/y?code=abcdef", "<clientSecret>x", "sqlplus scott/x@db", "machine h login u password x",
     "AIzaabcdefghijklmnopqrst",
     "-----BEGIN PGP PRIVATE KEY BLOCK-----", 'Digest username="u", response="x"',
     "jdbc:postgresql://me:x@db/y", "me:x@db:5432", "-----BEGIN PRIVATE KEY-----", "x" * (MOST_VALUE + 1)],
)  # fmt: skip
def test_values_with_credentials(value: str) -> None:
    assert holds_credentials(value)


@pytest.mark.parametrize(
    "value", ["", "8640000123", "0:1,1:2", "broker-1:9092,broker-2:9092", "SASL_SSL:SASL_SSL", "http://host:80/path",
              "delete", "TLSv1.3", "max tokens", "1@broker-1:9093,2@broker-2:9093", "a basic idea",
              "User:alice;User:bob",
              "org.apache.kafka.server.authorizer.Authorizer", "bypass=true", "compass: north",
              "task-1=x", "x" * MOST_VALUE, "mysql is slow", "redis-cli and more-apples", "tar -xpf x",
              "ssh://git@host/x", "kafka/host.example.com@REALM", "sort -u a", "https://shop/x?code=US",
              "npm_config_registry", "keys --password"],
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


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [("database.login", "letmein", True), ("oauth.refresh", "x", True), ("webhook.url", "https://h/x", True),
     ("x.login.retries", "3", False), ("x.refresh.interval", "30 s", False), ("x.webhook.enabled", "true", False),
     ("x.login", "", False), ("x.login", None, False), ("x.password", None, True), ("x.address", "8f3Kd02mQ1", True),
     ("x.class", "io.example.kafka.v2.Foo2Bar", False), ("x.region", "eu-central-1", False),
     ("x.hosts", "broker01:9092", False), ("x.id", "my-cluster-kafka-0", False),
     ("x.suite", "TLS_AES_256_GCM_SHA384", False),
     ("x.version", "3.9-IV0", False),
     ("x.from", "2026-11-29T10:00:00Z", False), ("x" * 1025, "3", True)],
)  # fmt: skip
def test_settings_that_are_none_of_kafkas_own(name: str, value: str | None, hidden: bool) -> None:
    assert may_be_credentials(name, value) is hidden
