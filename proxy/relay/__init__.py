"""The relay: one process that moves bytes between clients and brokers, and shows the frames in them to those who asked.

In the order in which a frame meets them: `loop` (epoll and what all connections share), `acceptor`, `connection` with its
`states`, `half_connection` (bytes of one direction), `correlation` (requests in flight), then `proxy.relay.interception` and
`proxy.relay.addressing`. `native` is the accelerator's part. Aside: `tracking_mode` (rules that come
 while connections stand), `unreachable_broker`, `sockets`, and the two places that commands come from.
"""
