"""The manual of the commands about the protocol itself (see `manual`)."""

PAGES = r"""
== translate
$ barnabas translate 4.3 0.10.2
  What a new client asks that an old broker would not understand.
see proxy, versions, docs/translation.md
== encode
$ echo '{"topics": null}' | barnabas encode --api Metadata --version 12
  A request in hexadecimal.
$ barnabas encode --api 18 --version 0 --size --binary '{}' | nc kafka 9092
  Ask a broker by hand.
see decode, schema
== filter
see docs/filter.md
== filter fields
$ barnabas filter fields
  What a filter can speak of.
== filter check
$ barnabas filter check "api == Fetch and latency > 50ms" recording
  Whether it is one, and how many exchanges it selects.
== schema
see explain, versions, docs/kafka-release.md
== schema coverage
$ barnabas schema coverage
  How much of the protocol is decoded; every version is tried.
== schema show
$ barnabas schema show Metadata 12
  Every field of one version.
== schema release
$ barnabas schema release 3.9
  What its brokers serve.
== schema import
$ barnabas schema import kafka/libs
  What a new release changes; nothing is written.
== man
$ barnabas man | man -l -
  The whole manual.
$ barnabas man rules try > barnabas-rules-try.1
  One command's page, for a folder of your MANPATH.
see docs/guide.md
"""
