"""The manual of the commands for live traffic, and of those that break and steer it (see `manual`)."""

PAGES = r"""
== barnabas
$ barnabas demo
  See it all at once: mock brokers, clients and the proxy between them.
$ barnabas proxy --broker kafka:9092 --record recording
  Stand in front of a cluster; clients connect to 127.0.0.1:19092.
$ barnabas ui recording
  Look at it, while it runs or later.
$ barnabas COMMAND --help
  Everything about one command: options, examples, exit status.
env NO_COLOR: set to anything, no colours are used
see docs/guide.md, docs/operations.md
== demo
$ barnabas demo
  The screen, until Q.
$ barnabas demo --headless --seconds 15
  A table for a terminal that is none, such as a CI log.
0: Ended by Q, Ctrl-C or --seconds.
130:
file ./recordings/demo-TIME: the recording, unless --record says where
see ui, proxy, docs/guide.md
== proxy
$ barnabas proxy --broker kafka:9092
  Clients connect to 127.0.0.1:19092, brokers get 19093 and following.
$ barnabas proxy --broker kafka:9092 --record DIR --keep-size 10GB
  Record for as long as it runs, the newest 10 GB.
$ barnabas proxy --broker kafka:9092 --rules rules.yaml
  Break what the rules say; SIGHUP reads them again.
$ barnabas proxy --broker kafka:9093 --broker-tls --tls-ca ca
  TLS on both sides: clients trust ca/ca.pem.
$ barnabas proxy --broker old:9092 --translate
  A new client at an old broker, or the other way round.
$ barnabas proxy --config barnabas.toml --check
  Say whether a config file is fine, and end.
0: It was stopped: Ctrl-C, SIGTERM, barnabas control stop.
130:
file DIR/*.pcapng: segments of --record, each with an .index and a .strings beside it
file $XDG_RUNTIME_DIR/barnabas/: token and address of the control API (0600)
env BARNABAS_SASL_PASSWORD: the password, where no file gives it
env BARNABAS_FEED_TOKEN: what subscribers of the feed must know
see ui, findings, control, rules, config, docs/operations.md, docs/tls.md
== ui
$ barnabas ui recording
  A recording, also one that a proxy still writes.
$ barnabas ui --attach newest
  Your newest running proxy, over its control API.
$ barnabas ui --web recording
  In a browser.
$ barnabas ui dump.pcap | head
  Plain lines, as there is no terminal.
file ~/.config/barnabas/ui.toml: settings; --settings names another file
file ~/.local/state/barnabas/filters: filters that were used
env BARNABAS_CONTROL_TOKEN: the token of the proxy, with --attach
env EDITOR, VISUAL: what edits a held message or a rule
see decode, feed, filter, docs/tui.md
== sniff
$ barnabas sniff -i eth0 --port 9092 -o DIR
  Record what clients and brokers say here; nobody is pointed anywhere.
$ barnabas sniff -i lo -o DIR --seconds 60 --filter "err != 0"
  A minute, and only what failed.
0: Ended by Ctrl-C, SIGTERM or --seconds.
130:
file DIR/*.pcapng: segments, each with an .index and a .strings beside it
see import, transparent, ui, docs/transparent.md
== feed
$ barnabas feed
  From 127.0.0.1:19095, started with: barnabas proxy --feed 127.0.0.1:19095 ...
$ barnabas feed --totals --seconds 10 kafka-proxy:19095
  Ten lines of totals of a proxy elsewhere.
$ barnabas feed --json | jq -c 'select(.error)'
  What fails, for another program.
0: Ended by Ctrl-C or --seconds.
130:
env BARNABAS_FEED_TOKEN: the feed's token, where no file gives it
see proxy, control, docs/feed.md
== transparent
see proxy, sniff, docs/transparent.md
== transparent up
$ barnabas transparent up --port 9092 --dry-run
  Show what would be set; needs no rights.
$ barnabas transparent up --port 9092
  Redirect; then: barnabas proxy --transparent redirect
$ barnabas transparent up --port 9092 --mode tproxy
  With the brokers' own addresses kept in the packets.
== transparent down
$ barnabas transparent down
  Connections go straight to the brokers again.
== config
see proxy, docs/operations.md
== config example
$ barnabas config example > barnabas.toml
  Then: barnabas proxy --config barnabas.toml
== rules
see proxy, control, docs/rules.md
== rules check
$ barnabas rules check rules.yaml
  File, line and column of what is wrong, or what each rule is about.
== rules try
$ barnabas rules try rules.yaml recording
  Which exchanges would have been broken, and how.
== rules recipes
$ barnabas rules recipes
  The list.
$ barnabas rules recipes leader-election --topic orders > rules.yaml
  One of them, for one topic.
== plugins
see proxy, docs/plugins.md
== plugins list
$ barnabas plugins list
  What can be given to: barnabas proxy --plugin NAME
== plugins check
$ barnabas plugins check my.py
  What a plugin of yours is for, before a proxy loads it.
== control
env BARNABAS_CONTROL_URL: the API's address, as --url
env BARNABAS_CONTROL_TOKEN: its token
file $XDG_RUNTIME_DIR/barnabas/: where running proxies are found
see proxy, ui, docs/control.md
== control status
$ barnabas control status
  Of your newest running proxy.
$ barnabas control --url unix:/run/kafka.sock status --json
  Of that one.
== control exchanges
$ barnabas control exchanges 'err != 0' --follow
  What fails, as it happens.
== control rules
$ barnabas control rules --add rules.yaml
  From now on, on connections that stand, too.
$ barnabas control rules --hits slow-fetch
  When it fired, and on what.
== control held
$ barnabas control held
  What an intercept holds, one JSON object per line.
== control record
$ barnabas control record DIR --keep-size 10GB
  Begin to record.
$ barnabas control record --rotate
  Close the segment, so that it can be copied.
== control flight
$ barnabas control flight incident-7 --reason "slow commits"
  Write out the last minutes; needs: barnabas proxy --flight DIR
== control stop
$ barnabas control stop
  As Ctrl-C at the proxy's own terminal.
"""
