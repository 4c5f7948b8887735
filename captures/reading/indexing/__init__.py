"""Events and index records from packets: of a recording's own segments, and of captures that other tools wrote."""
