"""The manual of the commands for recordings, and of those that say what is wrong (see `manual`)."""

PAGES = r"""
== findings
$ barnabas findings recording
  What is wrong, the worst first, with what to do.
$ barnabas findings recording --fail-on high
  For CI: a failure if something fails now.
$ barnabas findings --follow recording
  Of a recording that runs, as it comes.
1: A finding is as severe as --fail-on says, or worse.
see explain, versions, ui, docs/findings.md
== versions
$ barnabas versions recording
  Who uses which versions, and what the broker offers.
$ barnabas versions kafka:9092
  What a broker and its cluster offer.
see compat, schema, docs/versions.md
== compat
$ barnabas compat recording --against 4.0
  Who would break after an upgrade, and what helps.
$ barnabas compat recording --against 4.0 --html report.html
  The same as a page for others.
1: A client's verdict is as bad as --fail-on says, or worse.
see versions, explain, docs/versions.md
== explain
$ barnabas explain UNSUPPORTED_VERSION
  An error, by its name; 35 is the same.
$ barnabas explain max.poll.interval.ms
  A setting of clients.
see findings, schema, docs/findings.md
== diff
$ barnabas diff before after
  What a program does otherwise since the change.
$ barnabas diff before after --by client --fail-on medium
  For CI, put together by client.
1: There is a difference of the level of --fail-on, or a worse one.
see replay, docs/diff.md
== crosscheck
$ barnabas crosscheck recording
  Does Wireshark read the same? Needs tshark and barnabas[tshark].
$ barnabas crosscheck --json dump.pcap
  One JSON object for each frame, for another program.
1: Barnabas reads a frame wrongly.
see decode, docs/import.md
== decode
$ barnabas decode recording --filter "api == Produce and err != 0"
  Exchanges, one line each.
$ barnabas decode recording --json --no-bodies
  One JSON object for each, for another program.
$ barnabas decode --hex 00120000000000010003666f6f --request
  One message, field by field.
see ui, export, encode, filter, docs/values.md
== import
$ barnabas import dump.pcap -o recording
  A capture by tcpdump or Wireshark, with an index.
$ barnabas import dump.pcap.gz -o recording --keylog keys.txt
  With TLS; needs tshark.
130: Ended by Ctrl-C; what was read so far is a recording.
file DIR/*.pcapng: segments, each with an .index and a .strings beside it
see sniff, index, docs/import.md
== index
$ barnabas index recording
  Verify all, and make indexes that are missing.
$ barnabas index --check recording
  Look only.
1: Something is damaged; with --check also: an index is missing or wrong.
file SEGMENT.index, SEGMENT.strings: the index beside a segment
see import, docs/formats.md, docs/recording.md
== export
$ barnabas export recording --as csv > exchanges.csv
  The list of exchanges.
$ barnabas export recording -t records --show-values --as parquet -o r.parquet
  Records with keys and values.
$ barnabas export recording --exchange 17 --as pytest
  One exchange as a test.
130: Ended by Ctrl-C; no file is left.
see decode, report, docs/export.md
== redact
$ barnabas redact recording shared --all
  Names, addresses and contents become pseudonyms.
$ barnabas redact recording shared --values --salt-file salt
  Contents only; the same pseudonyms as in other captures with this salt.
see cut, docs/share.md
== cut
$ barnabas cut recording part.pcapng --filter "topic == orders"
  What is about a topic, in one file.
$ barnabas cut recording part --from +90s --to +2m
  Half a minute of it.
see merge, redact, docs/share.md
== merge
$ barnabas merge all proxy-1 proxy-2
  The recordings of two proxies by time.
$ barnabas merge all a b --shift b=-200ms
  The clock of b was 200 ms ahead.
see cut, docs/share.md
== replay
$ barnabas replay recording --to kafka:9092 --dry-run
  What would be sent; connects to nobody.
$ barnabas replay recording --to kafka:9092 --speed max --report report.json
  As fast as answers come, with all differences in a file.
$ barnabas replay recording --to kafka:9092 --topic-map orders=test-orders
  Into another topic.
1: There are some of what --fail-on names.
130: Ended early by Ctrl-C, with a report of what was sent.
env BARNABAS_SASL_PASSWORD: the password, where no file gives it
see serve, diff, docs/replay.md
== serve
$ barnabas serve recording
  Clients connect to 127.0.0.1:19092 and are answered as recorded.
$ barnabas serve recording --on-miss record --broker kafka:9092
  What was not recorded is asked of a broker, and added.
0: Ended by Ctrl-C; every request had an answer.
130:
1: Requests had no recorded answer.
see replay, docs/serve.md, docs/testing.md
== report
$ barnabas report recordings --html report.html
  Everything about many captures, on a page.
$ barnabas report tables --only errors,latency --csv out
  Two of the reports, of tables that a pipeline made.
env JAVA_HOME: Java 17 or newer, for --engine spark
see pipeline, findings, docs/tables.md
== pipeline
env SPARK_REMOTE: a Spark Connect server, as --remote
env JAVA_HOME: Java 17 or newer
see report, docs/pipeline.md, docs/tables.md
== pipeline run
$ barnabas pipeline run --input recordings --output tables
  What is new since the last time.
$ barnabas pipeline run --input s3://b/in --output s3://b/out --dry-run
  What would be read.
$ barnabas pipeline run --input recordings --output tables --master none
  Without Spark and Java.
file OUTPUT/TABLE/date=.../*.parquet: the tables
== pipeline stream
$ barnabas pipeline stream --input recordings --output tables
  Segments as they are closed, until Ctrl-C.
file OUTPUT/TABLE/date=.../*.parquet: the tables
"""
