"""Imported by the process that the commands of tests are forks of: Kafka's definitions and the explanations are read once, for
all of them."""

from __future__ import annotations

from barnabas.decoder import facts
from barnabas.decoder.explanations import texts

for _key in facts.api_keys():
    facts.api(_key)
for _read in (texts.apis, texts.errors, texts.kips, texts.settings):
    _read()
