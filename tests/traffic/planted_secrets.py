"""Secrets planted in traffic, and the search for them in any output, in every encoding that does not hide them."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from typing import Any, NamedTuple

import cramjam
from barnabas import decoder


def secret(name: str) -> str:
    """The secret planted under a name: 24 letters and digits, the same every time."""
    return hashlib.sha256(name.encode()).hexdigest()[:24]


class PlantedExchange(NamedTuple):
    """A request and its answer."""

    request: bytes
    response: bytes


SETTINGS = (
    "sasl.login.pass", "confluent.license", "confluent.license.key", "ldap.bind.pw", "ldap.security.credentials",
    "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates", "sasl.jaas.config",
    "listener.name.x.plain.sasl.jaas.config", "listener.name.x.ssl.key.password", "s3.secret.access.key",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase",
    "aws.access.key.id", "azure.storage.account.key", "azure.sas", "gcs.credentials.json", "cloud_storage_secret_key",
    "cloud_storage_azure_shared_key", "confluent.metadata.basic.auth.user.info", "schema.registry.user-info",
    "vault.token", "jmx.password", "smtp.pwd", "encryption.key", "delegation.token.master.key", "password.encoder.secret",
    "delegation.token.secret.key", "db.passwd", "api.key", "apikey", "bearer.auth", "proxy.authorization", "http.cookie",
    "private_key", "admin-pass", "login_pw", "card.pin", "signing.key", "hmac_key", "psk", "service.jwt", "passcode",
    "azure.connection.string", "krb5.keytab.content", "ssl.client.p12", "client.cert.key", "bootstrap.creds",
    "trustpass", "keypass", "storepass", "http.session.id", "otp.seed", "kms.dek", "registry.dsn", "x.auth",
    "openai.key", "database.login", "oauth.refresh", "webhook.url", "ssh.identity", "oauth.code.verifier",
    "seed.phrase", "saml.assertion", "snmp.community", "telegram.bot", "github.pat", "kerberos.ticket", "hash.pepper",
    "kubeconfig.content", "a.name.that.says.nothing",
)  # fmt: skip
"""Settings of Kafka, of products around it and of plugins whose names tell that their values are secrets."""
VALUES = {
    "value: url": "https://me:{}@registry:8081/x", "value: jdbc": "jdbc:postgresql://db/x?user=me&password={}",
    "value: mongodb": "mongodb://me:{}@db:27017", "value: jaas": 'a.B.PlainLoginModule required user="u" password="{}";',
    "value: azure": "Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey={}", "value: json": '{{"client_secret": "{}"}}',
    "value: pem": "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "value: yaml": "passphrase: {}",
    "value: redis": "redis://:{}@cache:6379", "value: basic": "Authorization: Basic {}", "value: bearer": "bearer {}",
    "value: header": "X-Api-Key: {}", "value: cookie": "Cookie: s={}", "value: signed": "https://x.blob/y?sv=1&sig={}",
    "value: presigned": "https://x/y?X-Amz-Signature={}", "value: jwt": "eyJhbGciOiJIUzI1NiJ9.e30.{}",
    "value: private key": '{{"private_key": "{}"}}', "value: source host": "ghp_{}", "value: chat": "xoxb-12345678-{}",
    "value: command line": "--password {}", "value: variable": "DB_PASS={}", "value: xml": "<password>{}</password>",
    "value: oracle": "jdbc:oracle:thin:scott/{}@db:1521", "value: scram": "a.B required username=u password={};",
    "value: mysql": "mysql -u root -p{} db", "value: curl": "curl -u me:{} http://x",
    "value: long option": "x --api-key={}",
    "value: slack": "https://hooks.slack.com/services/T0/B0/{}",
    "value: discord": "https://discord.com/api/webhooks/1/{}",
    "value: payment": "sk_live_{}", "value: pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----{}",
    "value: code": "http://x/?code={}",
    "value: xml name": "<clientSecret>{}</clientSecret>", "value: sqlplus": "sqlplus scott/{}@db",
    "value: list": "http://a:8081,https://me:{}@b:8081", "value: oauth": "client_secret={}&grant_type=x",
}  # fmt: skip
"""Values that are secrets, whatever the name of their setting."""
QUOTES = {
    "quoted plain password": "Invalid password {} for user 'app'", "quoted plain password as a word": "'{}' is wrong",
    "quoted token": "Bearer {} has expired", "quoted token of a step before": "invalid_token {} (see the step before)",
    "quoted named password": "login refused: password={}", "quoted proof": "wrong proof {}",
    "quoted altered value": "no such setting: my.own={}", "quoted incremental value": "cannot parse '{}' of my.own",
    "quoted among others": "Unknown value {} for x", "quoted part of a url": "host of {} is unknown",
    "quoted part of a jaas": "password {} is too weak", "quoted invalid value": "Invalid value {} for configuration my.own: no",
    "quoted of a topic": "{}? not for this topic", "quoted salt": "bad salt {}", "quoted of many": "refused: {}",
    "quoted of a cut request": "refused: {}", "quoted by a policy": "password {} is not allowed",
    "quoted url of a policy": "cannot reach https://me:{}@policies/x",
    "quoted by an authorizer": "Bearer {} has expired",
}  # fmt: skip
"""Error messages of brokers that quote a secret of the request."""
NAMES = (
    *SETTINGS, *VALUES, *QUOTES,
    "plain password", "scram salt", "scram proof", "scram signature", "oauth token", "oauth secret extension",
    "gssapi token", "raw sasl token", "raw sasl answer", "created token", "renewed token", "expired token",
    "described token", "new scram salt", "salted password", "keystore password", "jaas config", "pem key",
    "sensitive setting", "sensitive synonym", "setting that speaks", "topic setting", "created topic setting",
    "streams setting", "streams changelog setting", "described streams setting",
    "forwarded setting", "forwarded answer", "unknown version", "cut off", "surplus", "http authorization",
)  # fmt: skip


def _setting(name: str, value: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": 4, "resource_name": "1", "configs": [{"name": name, "value": value}]}]}


def _topology(repartition: list[dict[str, Any]], changelog: list[dict[str, Any]]) -> dict[str, Any]:
    """A topology of Kafka Streams with a topic of each kind, and its settings."""
    topics = {"repartition_source_topics": repartition, "state_changelog_topics": changelog}
    listed = {kind: [{"name": kind, "topic_configs": configs}] for kind, configs in topics.items()}
    return {"epoch": 1, "subtopologies": [{"subtopology_id": "0", **listed}]}


def dialog() -> list[PlantedExchange]:
    """The exchanges of one connection: every message that carries secrets, with all of `NAMES` but those of raw bytes."""
    found: list[PlantedExchange] = []

    def exchange(key: int, version: int, request: dict[str, Any], response: dict[str, Any], tail: bytes = b"") -> None:
        number = len(found)
        frame = decoder.encode_request(key, version, request, correlation_id=number, client_id="app")
        found.append(PlantedExchange(frame + tail, decoder.encode_response(key, version, response, correlation_id=number)))

    def login(step: str, answer: str = "") -> None:
        exchange(36, 2, {"auth_bytes": step.encode()}, {"auth_bytes": answer.encode()})

    def coded(name: str) -> str:
        return base64.b64encode(secret(name).encode()).decode()

    exchange(17, 1, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]})
    login(f"\0user\0{secret('plain password')}")
    login("n,,n=user,r=abcdefgh", f"r=abcdefghij,s={coded('scram salt')},i=4096")
    login(f"c=biws,r=abcdefghij,p={coded('scram proof')}", f"v={coded('scram signature')}")
    login(f"n,,\x01auth=Bearer {secret('oauth token')}\x01clientSecret={secret('oauth secret extension')}\x01\x01")
    token = b"\x60\x50\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00" + secret("gssapi token").encode()
    exchange(36, 1, {"auth_bytes": token}, {})
    exchange(38, 2, {}, {"hmac": secret("created token").encode(), "token_id": "t"})
    exchange(39, 1, {"hmac": secret("renewed token").encode()}, {})
    exchange(40, 2, {"hmac": secret("expired token").encode()}, {})
    exchange(41, 2, {}, {"tokens": [{"token_id": "t", "hmac": secret("described token").encode()}]})
    upsertion = {
        "name": "u",
        "mechanism": 1,
        "iterations": 4096,
        "salt": secret("new scram salt").encode(),
        "salted_password": secret("salted password").encode(),
    }
    exchange(51, 0, {"upsertions": [upsertion]}, {"results": [{"user": "u", "error_code": 0}]})
    exchange(33, 1, _setting("ssl.keystore.password", secret("keystore password")), {})
    jaas = f'org.apache.kafka.PlainLoginModule required password="{secret("jaas config")}";'
    exchange(44, 1, _setting("listener.name.x.sasl.jaas.config", jaas), {})
    exchange(44, 0, _setting("ssl.keystore.key", f"-----BEGIN KEY-----{secret('pem key')}"), {})
    settings = [
        {"name": "plain.name", "value": secret("sensitive setting"), "is_sensitive": True},
        {
            "name": "ssl.key.password",
            "value": None,
            "synonyms": [{"name": "ssl.key.password", "value": secret("sensitive synonym"), "source": 4}],
        },
        {"name": "plain.url", "value": f"db:user=me;password={secret('setting that speaks')}"},
        {"name": "retention.ms", "value": "8640000123"},
    ]
    exchange(32, 2, {"resources": []}, {"results": [{"resource_type": 2, "resource_name": "t", "configs": settings}]})
    topic = {"name": "t", "num_partitions": 1, "configs": [{"name": "x.api.key", "value": secret("topic setting")}]}
    made = {"name": "t", "configs": [{"name": "x", "value": secret("created topic setting"), "is_sensitive": True}]}
    exchange(19, 5, {"topics": [topic]}, {"topics": [made]})
    inner = decoder.encode_request(33, 2, _setting("ssl.key.password", secret("forwarded setting")), client_id="c")
    forwarded = {"request_data": inner, "client_host_address": b"\x0a\0\0\1", "request_principal": None}
    exchange(58, 0, forwarded, {"response_data": b"\0\0\0\0" + secret("forwarded answer").encode()})
    said = {name: text.format(secret(name)) for name, text in QUOTES.items()}

    def refused(step: str, name: str) -> None:
        exchange(36, 2, {"auth_bytes": step.encode()}, {"error_code": 58, "error_message": said[name]})

    refused(f"\0app\0{secret('quoted plain password')}", "quoted plain password")
    refused(f"\0app\0x,{secret('quoted plain password as a word')},y", "quoted plain password as a word")
    refused(f"n,,\x01auth=Bearer {secret('quoted token')}\x01\x01", "quoted token")
    refused("\x01", "quoted token of a step before")
    refused("\x01", "quoted named password")
    refused(f"c=biws,r=abcdefghij,p={secret('quoted proof')}", "quoted proof")

    def altered(key: int, name: str, *values: str) -> None:
        request = {"resources": [{"resource_type": 4, "configs": [{"name": "my.own", "value": v} for v in values]}]}
        exchange(key, 1, request, {"responses": [{"error_code": 40, "error_message": said[name], "resource_type": 4}]})

    altered(33, "quoted altered value", secret("quoted altered value"))
    altered(44, "quoted incremental value", secret("quoted incremental value"))
    altered(44, "quoted among others", "abcdefgh", secret("quoted among others"), "x" * 40)
    altered(44, "quoted part of a url", f"https://u:pw@{secret('quoted part of a url')}/x")
    altered(33, "quoted part of a jaas", f'a.B required password="{secret("quoted part of a jaas")}";')
    altered(33, "quoted invalid value", "a different value")
    altered(44, "quoted of many", secret("quoted of many"), *(f"value-{number}" for number in range(100)))
    topic = {"name": "t", "num_partitions": 1, "configs": [{"name": "my.own", "value": secret("quoted of a topic")}]}
    made = {"name": "t", "error_code": 40, "error_message": said["quoted of a topic"]}
    exchange(19, 5, {"topics": [topic]}, {"topics": [made]})
    upsertion |= {"salt": secret("quoted salt").encode(), "salted_password": b"abcdefgh"}
    result = {"user": "u", "error_code": 93, "error_message": said["quoted salt"]}
    exchange(51, 0, {"upsertions": [upsertion]}, {"results": [result]})
    for name in ("quoted by a policy", "quoted url of a policy"):
        exchange(37, 3, {"topics": []}, {"results": [{"name": "t", "error_code": 44, "error_message": said[name]}]})
    refusal = {"error_code": 31, "error_message": said["quoted by an authorizer"]}
    exchange(30, 3, {"creations": []}, {"results": [refusal]})
    configs = [{"key": "my.own", "value": secret("streams setting")}], [{"key": "retention.ms", "value": "8640000123"}]
    exchange(88, 0, {"group_id": "s", "member_id": "m", "topology": _topology(*configs)}, {})
    configs = [], [{"key": "x.token", "value": secret("streams changelog setting")}]
    exchange(88, 0, {"group_id": "s", "member_id": "m", "topology": _topology(*configs)}, {})
    configs = [{"key": "x.login", "value": secret("described streams setting")}], []
    exchange(89, 0, {"group_ids": ["s"]}, {"groups": [{"group_id": "s", "topology": _topology(*configs)}]})
    for version in (1, 4):
        listed = [{"name": name, "value": secret(name)} for name in SETTINGS]
        listed += [{"name": "log.dirs", "value": value.format(secret(name))} for name, value in VALUES.items()]
        exchange(32, version, {"resources": []}, {"results": [{"resource_type": 4, "configs": listed}]})
    # The request is shorter than it says, so nobody knows what is secret in it.
    exchange(44, 1, _setting("my.own", secret("quoted of a cut request")), {
        "responses": [{"error_code": 40, "error_message": said["quoted of a cut request"], "resource_type": 4}],
    })  # fmt: skip
    found[-1] = found[-1]._replace(request=found[-1].request[:-10])
    # Nobody knows the layout of this version, nor what stands behind the end of the last one.
    unknown = b"\x00\x24\x00\x63" + len(found).to_bytes(4, "big") + b"\0\x03app" + secret("unknown version").encode()
    found.append(PlantedExchange(unknown, len(found).to_bytes(4, "big") + b"\0\0" + secret("unknown version").encode()))
    cut = decoder.encode_request(
        36, 0, {"auth_bytes": secret("cut off").encode()}, correlation_id=len(found), client_id="app"
    )
    cut = cut.replace(b"\x00\x00\x00\x18", b"\x00\x00\x00\x7f")
    found.append(PlantedExchange(cut, decoder.encode_response(36, 0, {}, correlation_id=len(found))))
    exchange(36, 0, {"auth_bytes": b"x"}, {}, secret("surplus").encode())
    return found


def forms(text: str) -> list[bytes]:
    """The shapes that a secret may have in bytes or text."""
    raw = text.encode()
    found = [raw, text.upper().encode(), text.encode("utf-16-le"), raw.hex().encode(), raw.hex().upper().encode()]
    found.append(raw.hex(" ").encode())
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
        inner = coded[(0, 2, 3)[shift] :][:-2]  # the ends mix with what stands beside them
        found += [inner, inner.replace(b"+", b"-").replace(b"/", b"_")]
    return found


_FORMS = {name: forms(secret(name)) for name in NAMES}


def leaks(data: bytes) -> set[str]:
    """The names of the secrets that are in some bytes, also inside of what is compressed there."""
    parts = (data, *unpacked(data))
    return {name for name, shapes in _FORMS.items() if any(form in part for part in parts for form in shapes)}


def unpacked(data: bytes) -> list[bytes]:
    """What gzip, zlib and zstd streams anywhere in the bytes hold."""
    found = []
    for start in (m.start() for m in re.finditer(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]", data)):
        wide = 31 if data[start] == 0x1F else 15
        try:
            found.append(zlib.decompressobj(wide).decompress(data[start:], 1 << 24))
        except zlib.error:
            continue
    for start in (m.start() for m in re.finditer(re.escape(b"\x28\xb5\x2f\xfd"), data)):
        try:
            found.append(bytes(cramjam.zstd.decompress(data[start:])))
        except cramjam.DecompressionError:
            continue
    return found
