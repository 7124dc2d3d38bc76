"""The worlds that are searched: small ones in every run, in which a missing guard shows too, and large ones by wish."""

from __future__ import annotations

from ownership_model import Publisher, Scenario


def mesh(instances: int, *, through: bool = True) -> dict[tuple[int, int], bool]:
    """Links from each to each; with `through`, each also passes on what others published."""
    return {(a, b): through for a in range(instances) for b in range(instances) if a != b}


def anonymous(*homes: int) -> tuple[Publisher, ...]:
    """A message each, from somebody without a name, at these instances."""
    return tuple(Publisher(home, (message,)) for message, home in enumerate(homes))


CHAIN = {(0, 1): True, (1, 0): True, (1, 2): True, (2, 1): True}
ALL = frozenset({0, 1, 2})
NOBODY: frozenset[int] = frozenset()


def named(home: int, *messages: int) -> tuple[Publisher, ...]:
    """One publisher with a name, that sends these messages again after a fail-over."""
    return (Publisher(home, messages, named=True),)


def some(*instances: int) -> frozenset[int]:
    """A set of instances, or of messages."""
    return frozenset(instances)


# In words of docs/replication-proof.md. Small enough for every run.
SMALL = {
    "two instances, a message at each": Scenario(2, anonymous(0, 1), mesh(2, through=False), grants=3),
    "two, one message": Scenario(2, anonymous(0), mesh(2), grants=2),
    "two, everything read again at any time": Scenario(2, anonymous(0, 1), mesh(2), grants=2, replays=True),
    "two, each may crash": Scenario(2, anonymous(0), mesh(2), grants=2, crashes=1, mortal=some(0, 1)),
    "two, three crashes": Scenario(2, anonymous(0), mesh(2), grants=3, crashes=3, mortal=some(0, 1)),
    "two, a late call, one crash": Scenario(
        2, (Publisher(0, (0, 1)),), mesh(2), subscribers=NOBODY, crashes=1, mortal=some(1), late=1
    ),
    "three, two routes to each": Scenario(3, anonymous(0), mesh(3), grants=3),
    "three in a chain": Scenario(3, anonymous(0), CHAIN, grants=3),
    "three, one crash": Scenario(3, anonymous(0), mesh(3), grants=2, crashes=1, mortal=ALL),
    "three, two crashes": Scenario(3, anonymous(0), mesh(3), grants=2, crashes=2, mortal=ALL),
    "three, a filter on one link": Scenario(
        3, (Publisher(0, (0, 1)),), mesh(3, through=False), filters={(0, 2): some(1)}, grants=1
    ),
    "three, another filter on another route": Scenario(
        3, (Publisher(0, (0, 1)),), mesh(3), filters={(0, 2): some(0)}, subscribers=NOBODY
    ),
    "three in a chain, a filter on its first link": Scenario(
        3, (Publisher(0, (0, 1)),), CHAIN, filters={(0, 1): some(1)}, grants=1
    ),
    "group local queue": Scenario(3, anonymous(0), mesh(3), grants=2, initial_owner=1),
    "late acknowledgements, tokens that a crash gives again": Scenario(
        2, anonymous(0), mesh(2), grants=1, crashes=1, mortal=some(0), deliveries=3
    ),
    "a barrier": Scenario(2, (Publisher(0, (0, 1)),), mesh(2), barriers=some(1)),
    "a barrier between messages of two": Scenario(
        2, (Publisher(0, (0, 1)), Publisher(1, (2,))), mesh(2), grants=1, barriers=some(1)
    ),
    "the operator's word": Scenario(2, anonymous(0), mesh(2), grants=1, proxied=1),
    "the operator's word, twice": Scenario(3, anonymous(0), mesh(3), proxied=2),
    "the operator's word and grants": Scenario(3, anonymous(0), mesh(3), grants=1, proxied=1),
    "trimming, one crash": Scenario(2, anonymous(0), mesh(2), crashes=1, mortal=some(1), trims=True),
    "doubled, the first copy lower": Scenario(2, named(0, 0), mesh(2), grants=2, failovers=1),
    "doubled, the second copy lower": Scenario(2, named(1, 0), mesh(2), grants=2, failovers=1),
    "doubled, three instances": Scenario(3, named(1, 0), mesh(3), grants=1, failovers=1),
    "doubled, in a chain": Scenario(3, named(0, 0), CHAIN, grants=1, failovers=1),
    "doubled, trimming": Scenario(2, named(0, 0), mesh(2), failovers=1, trims=True),
    "doubled, one crash": Scenario(2, named(1, 0), mesh(2), grants=1, failovers=1, crashes=1, mortal=some(0, 1)),
    "doubled, the operator's word": Scenario(2, named(1, 0), mesh(2), grants=1, failovers=1, proxied=1),
    "doubled, group local queue": Scenario(3, named(1, 0), mesh(3), grants=1, failovers=1, initial_owner=2),
    "doubled, restored": Scenario(
        2, named(1, 0), mesh(2), grants=1, failovers=1, restores=1, mortal=some(0), sync=True
    ),
    "two topics of one publisher": Scenario(2, named(0, 0, 1), mesh(2), topics=(0, 1), failovers=1, subscribers=NOBODY),
    "order, sync": Scenario(3, named(0, 0, 1), mesh(3, through=False), failovers=1, subscribers=NOBODY, sync=True),
    "order, async": Scenario(2, named(0, 0, 1), mesh(2), failovers=1, subscribers=NOBODY),
    "order, deliveries": Scenario(2, named(1, 0, 1), mesh(2), grants=1, failovers=1, sync=True),
    "emptied": Scenario(2, anonymous(0), mesh(2), grants=1, restores=1, mortal=some(0), sync=True, late=1),
    "emptied, three instances": Scenario(3, anonymous(0), mesh(3), grants=1, restores=1, mortal=some(0), sync=True),
    "restored": Scenario(2, anonymous(0), mesh(2), grants=1, restores=1, mortal=some(0), sync=True, backup=True),
    "restored, the operator's word": Scenario(
        2, anonymous(0), mesh(2), grants=1, restores=1, proxied=1, mortal=some(0), sync=True
    ),
    "the middle of a chain emptied": Scenario(3, anonymous(0), CHAIN, grants=1, restores=1, mortal=some(1), sync=True),
}

# With AMPSQ_WORLDS, the number of worlds that each may have.
LARGE = {
    "two, each message and link late, one crash": Scenario(
        2, anonymous(0, 1), mesh(2), grants=2, crashes=1, late=1, replays=True, mortal=some(0, 1)
    ),
    "three, three crashes, three grants": Scenario(3, anonymous(0), mesh(3), grants=3, crashes=3, mortal=ALL),
    "three, a message at two": Scenario(3, anonymous(0, 1), mesh(3, through=False), grants=1),
    "three in a chain, a filter, two grants": Scenario(
        3, (Publisher(0, (0, 1)),), CHAIN, filters={(0, 1): some(1)}, grants=2
    ),
    "a barrier, two grants, one crash": Scenario(
        2,
        (Publisher(0, (0, 1)), Publisher(1, (2,))),
        mesh(2),
        grants=2,
        crashes=1,
        mortal=some(0),
        barriers=some(1),
    ),
    "the operator's word twice, and grants": Scenario(3, anonymous(0), mesh(3), grants=1, proxied=2),
    "the operator's word, one crash": Scenario(
        3, anonymous(0), mesh(3), grants=1, proxied=1, crashes=1, mortal=some(0, 1)
    ),
    "doubled, three instances, two grants": Scenario(3, named(1, 0), mesh(3), grants=2, failovers=1),
    "doubled twice, three instances": Scenario(3, named(1, 0), mesh(3), grants=1, failovers=2),
    "doubled twice, two crashes": Scenario(
        2, named(0, 0), mesh(2), grants=2, failovers=2, crashes=2, mortal=some(0, 1)
    ),
    "doubled, three instances, the operator's word": Scenario(3, named(1, 0), mesh(3), failovers=1, proxied=1),
    "doubled twice, trimming, one crash": Scenario(
        2, named(0, 0), mesh(2), grants=1, failovers=2, trims=True, crashes=1, mortal=some(0, 1)
    ),
    "doubled, in a chain, trimming": Scenario(3, named(0, 0), CHAIN, failovers=1, trims=True),
    "doubled, restored from a backup": Scenario(
        2, named(0, 0), mesh(2), grants=1, failovers=1, restores=1, mortal=some(0), sync=True, backup=True
    ),
    "doubled, three instances, emptied": Scenario(
        3, named(0, 0), mesh(3), failovers=1, restores=1, mortal=some(0), sync=True
    ),
    "order of three messages over two fail-overs, sync": Scenario(
        3, named(0, 0, 1, 2), mesh(3, through=False), failovers=2, subscribers=NOBODY, sync=True
    ),
    "order of three messages over two fail-overs, async": Scenario(
        3, named(0, 0, 1, 2), mesh(3, through=False), failovers=2, subscribers=NOBODY
    ),
    "order over two fail-overs, one crash": Scenario(
        3, named(0, 0, 1), mesh(3), failovers=2, crashes=1, mortal=some(0, 1), subscribers=NOBODY, sync=True
    ),
    "emptied, two messages, a late call": Scenario(
        2, anonymous(0, 1), mesh(2), grants=1, restores=1, late=1, mortal=some(0), sync=True
    ),
    "emptied, two messages of a group local queue": Scenario(
        2, anonymous(0, 1), mesh(2), grants=1, restores=1, late=1, initial_owner=0, mortal=some(0), sync=True
    ),
    "restored, three instances, two grants": Scenario(
        3, anonymous(0), mesh(3), grants=2, restores=1, backup=True, mortal=some(0), sync=True
    ),
    "restored, one crash, a late call": Scenario(
        2, anonymous(0), mesh(2), grants=1, restores=1, crashes=1, late=1, mortal=some(0, 1), sync=True
    ),
    "restored, trimming": Scenario(
        2, anonymous(0), mesh(2), grants=1, restores=1, trims=True, backup=True, mortal=some(0), sync=True
    ),
}
