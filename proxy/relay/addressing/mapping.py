"""Which address map a relay has: a port per broker, a name per broker, or none."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...events import Address
from ..relay_settings import RelaySettings
from .address_map import AddressMap
from .sni_address_map import NamedBrokers
from .transparent import Unchanged

if TYPE_CHECKING:
    from ..interfaces import RelayInterface


def make_address_map(relay: RelayInterface, own: Address, settings: RelaySettings) -> AddressMap:
    """The one for a relay's settings; `own`: where its bootstrap listener is."""
    tls = settings.security.tls if settings.security is not None else None
    suffix = tls.sni_suffix if tls is not None and relay.rewrites else ""
    kind = partial(NamedBrokers, suffix=suffix) if suffix else AddressMap if relay.rewrites else Unchanged
    addresses: AddressMap = kind(
        own,
        relay.upstream,
        fixed=settings.resources.fixed_ports,
        same_host=relay.prober.same_host,
        opened=relay.opened,
        emit=relay.emit,
        shared_state=relay.shared_state,
        reserved={each.port: each.purpose for each in settings.reserved},
        known=relay.resolver.known,
        destinations=relay.destinations,
        most=relay.guard.most_brokers(),
        expiry=relay.guard.limits.broker_expiry,
        retain=relay.retain,
        stands=relay.bootstrap.alone,
    )
    return addresses
