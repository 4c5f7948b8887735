"""The pytest plugin: a proxy in front of a cluster for each test, faults that are counted, and what went over the wire.

    def test_a_leader_that_moves(barnabas):
        moved = barnabas.inject(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)
        send_orders(bootstrap=barnabas.bootstrap)
        assert moved.hits == 2
        barnabas.expect("api == Metadata", at_least=1)

See docs/testing.md.
"""
