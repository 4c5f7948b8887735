"""Free text: error messages, reasons, settings, comments. Words that are Kafka's or plain English stay, so that a
message can still be understood; every other word counts as a name and is replaced as one.

The words that stay are a fixed list and the names in the schema; a name that was replaced elsewhere before is replaced
here too, whatever it looks like.
"""

from __future__ import annotations

import re
from functools import cache

from ...decoder.embedded import names
from ...decoder.schema import facts
from .pseudonyms import IPV4, IPV6, KEPT, Pseudonyms

_TOKEN = re.compile(r"[^\s'\"(),;=\[\]{}<>|`]+")
_ADDRESS = re.compile(rf"{IPV6}|{IPV4}")
_PIECE = re.compile(r"[^:/@]+")
_LETTERS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:ms|s|%|MB|KB|B)?")
_PLAIN = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*")
_ENDS = ".,!?:-"

# What brokers and clients write in messages, beside the names in the schema. A fixed list: every word in it stays readable in
# redacted captures, so none is added that may be a name somewhere.
_PLAIN_WORDS = """
    a aborts about above absence absent accept acceptable accepted accepts accounted acknowledged acknowledgement
    acknowledges acl acquired acquisition across action active actual added adding addition address addresses adds admin
    administration advertise advertised affect affected again age ago ahead aiokafka algorithm alias alive all allocates
    allow allows alongside also although always among an announce announces anonymous another answer answered answers any
    anything anyway apache apis application applications apply archived are arrays arrival arrive arrived arrives as ask
    asking asks assertion assigned assignments assignors assigns assumed async asynchronous at attributes audience
    authenticated authorized authorizer authorizes auto automatically availability avoids aware b back background backlog
    backoff bad balancer balancers barnabas base batch batches be became because become been before behind being belong
    belongs below between beyond binds blanks block blocked blocks boolean bootstrap both brief briefly broken brokers
    buffer buffering bug build builder bump bursts but by byte bytes cache cached call callback called came can cancel
    cancelled cancels cannot carries carry case catching caught cause certificate certificates changed changelog changes
    changing characters check checked checkpoint checks checksum choose choosing chosen chunks cipher claim clash class
    classes classic cleanable cleaner cleanup clients clock clocks close closed closes clusters cmd code codec codes cold
    collected collection collide come comes commits committed committing common compact compacted compaction compacts
    compare complete completed completely compress compressed compresses configure configured connected connection
    connections connector connects considers console consumers contain container contains continue continues contradict
    controllers conversion converted converts cooperative coordinated coordinates coordinators copier copies copy cordoned
    correct corrupted costs could count counted counts covers crc crcs created creates creating creation ctrl currently
    cursor custom cut day days dead decided decides decision decode decoded decommissioned decrease dedupe def defaults
    definitions delay delayed deleted deletes deleting deletions delivery denies deny depending derive describes describing
    descriptions desired detail detect detected did died differ difference different differs digits directly directories
    directory dirty disable disagree discard disconnect disconnected disk disks distinct distinguished disturb dn dns do
    documentation does dot dots double doubles down downgrade draft dropped duplicates duration during dynamic each eager
    earlier earliest early effect elections elsewhere embedded enable enabled ended ending endless endpoints ends enforces
    engine ensure entity enumerations epochs equals errors even ever every everybody everything everywhere evicted exact
    exactly exceed exceeds exchange exist existed exp expected expects expiration expires expiry explained extend extends
    external factors factory fail failing fails failures fallback false far faster fatal fault faulty fell fences fetched
    fetchers fetching few fewer field fields file filter filters final finding finds finished firewall firewalls first fixed
    flexible flight flush follow followers followup formats formatted formed former forward forwarded forwarding forwards
    frame frameworks framing free frequent from front full further future gap garbage gave generate generated gets give
    given gives go goes got grant grow gssapi gzip h had handler hang hanging hangs happens hard hardly harmless has have
    headers heartbeats hello helps here high higher hit hmac hold holds host hour hours how huge hung i idempotence
    idempotent identification identified identifies identify identity idle if ignore imbalance impl implementation imported
    imports improvement include included including incompatible incomplete increases increasing indefinitely index
    individual infrequent initial initialised inside install installed instances instead insync int integers inter
    interceptor internal interval intervals into introduced io ip is isolation issuer it iterations iterator its itself j
    jaas java jitter jobs joined joining joins just jwks jwt keep keeper keeps kept kerberos keymanager keys keystore kind
    kinds kinit kip kips know known knows lag larger largest last lasts late latency later latest layout lead leadership
    leaderships leads leak learn learned learns least leaves leaving left length lengths less let letters libraries library
    librdkafka lifetime like limits linger listed listen listeners listing lists literal little live loading loads local
    location lock locked locks logger login logs long longer longest look looks lookup lose loses losing loss lost lower
    lowers lz made maintains make makes manager manually many map mapped marked masked match matched maximum may mean
    meaning means meant meantime mechanisms members membership memory merges messages meta metric metrics microseconds
    middlebox millis milliseconds min minimum minus minute minutes mirror misrouted missed missing misspelling misspelt
    mixed mode module more most mostly mount move moves moving ms msg much must mutation mutations mutual name named names
    nearby nearly need needs negative neither never newer newest next node nodes nor normal note nothing now null num
    numbered numbers o oauthbearer observers occasional occurs off offline often old older omits on once one ones only
    opaque open opened opens operations operator operators optionally ordered ordinal org other others otherwise otlp
    outdated outside over overflow overrides own owned owners page pages parse part partitioned partitioner passed password
    past path pattern payload pending people per perform performance period permanently permission persister persists phase
    place plain plaintext plugin pod point points poll polling polls pool port ports possible pre preallocate predecessor
    prefix prefixed prepared present preview previous price principals private probably process processed processes
    processing program programs properties proposals protocols provider providers proxies proxy prune purgatory purge
    purpose pushed pushes put python queue queued quick quorums quotes rack racks raise raises random rate ratio raw re
    reach reachable readable reader readers reads ready really reason reasons reassign reassigned reauth rebalanced
    rebalances rebalancing rebootstrapping rebuild receive received receiver receives recognises recording recordings
    recover recovered recovering recovery reference references refresh refused regex registers registry reject rejected
    rejects rejoin rejoins relative release releases relogin remain remained remains remember remembers removal removed
    removes renewable renewer renewers repartition repeat repeated repeatedly repeating repeats repetition replace replaced
    replacement replaces replicate replicated reporters requested requesting requests require requires reset resetting
    resigns resolve resolves resort responds responses restart restarted restarting restarts restore retention retriable
    retries retriever retry return returned returns reveal reverse revoked rewrite right rights roles roll rolling room
    round roundrobin rule rules run running runs runtime s safe salt salted same sample samples saves says scheduler scope
    second seconds secret secs secure see seen sees segments selector selects send sender sending sends sensitive sent
    sentences separate serde serialize serve servers service sessions sets setting settings setup several sha ships short
    shorten shortens shorter shortest should show shown shows shrinks shut shutting side silently since single sizes skew
    skip skipped skips slots slow slowed slowest small smaller snappy snapshots so socket software some something soon
    source space split spread spreads ssl stable stack standard standby start started starts startup static status stay
    stays step steps still stopped stops store stored stores strategies strategy string strings stuck sub submits subscribe
    subscribes subtopology subtract succeeded success such suites super support supported supports sure surprises survive
    switched system tagged take taken takes task tasks template tests text than that the their them themselves then there
    these they third this those thousand thread threads three threshold threw throttle throttled through throws ticket tier
    time timeouts times timestamps title tls today together tokens tolerate tolerating tombstones took tools topologies
    total trace traffic treat tries triggered true truncate truncated truncation trustmanager truststore try ttl turn turned
    twice two txt types unable unanswered unavailable unchanged unclean uncommitted uncompressed under underscore
    underscores unexpected unfencing uniform unique unit unless unregistered unsafe unsubscribe unsubscribed until unused up
    upgrade upgraded url use used username users uses usual usually util v validate validated validation validator values
    vendor verification verified verify very violates visible votes wait waited waits want wanted wants was watermark way
    well went were what when where whether which whichever while who whole whose why widen will win window wins wire with
    within without words works would wraps writer writes writing written wrong wrongly wrote x yet zero zoo zookeeper zstd
"""


@cache
def vocabulary() -> frozenset[str]:
    """The words that stay, in small letters."""
    found = set(_PLAIN_WORDS.split())
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
