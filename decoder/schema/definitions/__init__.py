"""The protocol's facts: one notation file per API, read by barnabas.decoder.schema.notation."""
