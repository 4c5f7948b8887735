"""Published bugs of client libraries, one file per client, in the notation of `explanations.blocks`; read by `bugs`.

A file is named as the client names itself in ApiVersions v3 and later (`schema/definitions/clients.txt`). The block
`table` says up to which `date` its `source` was read, which release was the `newest` then, and in `own` the oldest
release that sends its own version, if older ones send another. Every other block is a bug: its id, then

  versions   ``FIRST until FIXED``: versions from FIRST on have it, FIXED and later ones do not. ``any until FIXED`` if
             all older versions have it; ``FIRST on`` if no release had fixed it at the date of the table. A line for
             each branch of releases
  severity   how bad it is for those who meet it: high, medium, low or info
  what       what goes wrong, in one sentence
  wire       what a capture shows of it
  finding    ``finding ID: NAME=VALUE|VALUE ...``: a finding of this detector with these values in `Finding.about` is
             a trace of this bug, if the client's version has it; ``severity`` is a condition on the finding's; ``-``
             for no condition
  source     ``OWNER/REPOSITORY#NUMBER``, ``OWNER/REPOSITORY FILE``, a number of Kafka's issue tracker or an advisory
"""
