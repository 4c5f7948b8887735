"""Consumer groups: members, rebalances, assignments, coordinators, commits."""
