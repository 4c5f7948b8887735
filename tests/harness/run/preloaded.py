"""Imported by the process that the commands of tests are forks of: Kafka's definitions and the explanations are read
once, for all of them."""

from __future__ import annotations

from barnabas.decoder.reference.explanations import texts
from barnabas.decoder.schema import facts

for _key in facts.api_keys():
    facts.api(_key)
for _read in (texts.apis, texts.errors, texts.kips, texts.settings):
    _read()
