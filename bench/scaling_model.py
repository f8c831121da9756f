"""The time of a training step of R ranks, as src/nn/shards/nn_ranks.c computes and exchanges it: by formula, and by
simulation of each message. For scaling.py.

A step is: S / R shards forward and backward, each with its addition to the sums; what is done once (the update, which
every rank computes for all parameters); and five exchanges, each of a message from every rank to every other:

    told    what a shard tells: loss, exponents of its gradients, moments of normalisations
    parts   of gradients: to each rank the elements of which it forms the sums
    marks   maxima and counts of those sums, twice
    sums    rounded, from each rank to all
"""

import collections
import math
import random

# seconds of a message on its way; seconds a message costs its sender; bytes per second and direction
Interconnect = collections.namedtuple("Interconnect", "name latency overhead bandwidth")
INTERCONNECTS = [  # the bandwidths by definition, the rest assumed
    Interconnect("10 Gb/s Ethernet, TCP", 20e-6, 5e-6, 1.25e9),
    Interconnect("100 Gb/s InfiniBand", 1.5e-6, 0.5e-6, 12.5e9),
    Interconnect("400 Gb/s InfiniBand", 1.5e-6, 0.5e-6, 50e9),
]
EXCHANGES = ["told", "parts", "marks", "marks", "sums"]
SMALL = {"told", "marks"}  # vectors whose length does not depend on the number of parameters' elements

# parameters: elements; width: bytes of an element of a gradient; shard, once: seconds; told: bytes of a shard; marks:
# bytes of a rank
Network = collections.namedtuple("Network", "name parameters width shard once told marks")


def sum_width(width, own):
    """Bytes of an element of the gradients of a rank's shards: one by one, or their exact sum where it is shorter, 3 bytes
    of integers, a binary32 of floats if the shards are a node of their tree."""
    is_node = own & (own - 1) == 0
    return min(width * own, 3) if width == 2 else 4 if is_node else 4 * own


def message_bytes(network, exchange, ranks, own):
    """From one rank to one other; own: shards of a rank."""
    return {
        "told": network.told * own,
        "parts": network.parameters * sum_width(network.width, own) / ranks,
        "marks": network.marks,
        "sums": network.parameters * network.width / ranks,
    }[exchange]


def bytes_sent(network, ranks, own):
    return (ranks - 1) * sum(message_bytes(network, e, ranks, own) for e in EXCHANGES)


def exchange_seconds(net, ranks, size, tree=False):
    """A message of that size from each rank to each other. By a tree, which doubles what each rank has in every round,
    there are log2 of as many messages; the bytes are the same."""
    if ranks == 1:
        return 0.0
    messages = math.ceil(math.log2(ranks)) if tree else ranks - 1
    ways = messages if tree else 1  # one after the other
    return ways * net.latency + messages * net.overhead + (ranks - 1) * size / net.bandwidth


class Step:
    """The parts of the time of a step. overlap: the part of the shards' time during which gradients may be under way;
    faster: how many times as fast as measured a rank computes; tree: small vectors go by a tree."""

    def __init__(self, network, net, ranks, shards, overlap=0.0, faster=1.0, tree=False):
        own = shards // ranks
        self.shards = network.shard * own / faster
        self.once = network.once / faster
        sizes = {e: message_bytes(network, e, ranks, own) for e in EXCHANGES}
        seconds = {e: exchange_seconds(net, ranks, size, tree and e in SMALL) for e, size in sizes.items()}
        self.small = seconds["told"] + 2 * seconds["marks"]
        self.gradients = max(0.0, seconds["parts"] - overlap * self.shards) + seconds["sums"]
        self.messages = 0 if ranks == 1 else 2 * ((ranks - 1) * net.overhead + net.latency)  # of those of gradients

    @property
    def seconds(self):
        return self.shards + self.once + self.small + self.gradients


def weak_efficiency(network, net, ranks, **how):
    """One shard a rank: the step of one rank over that of many, which compute so many times as much."""
    return Step(network, net, 1, 1, **how).seconds / Step(network, net, ranks, ranks, **how).seconds


def simulate_exchange(net, ready, size):
    """Each rank sends to the next ones in turn. A sender and a receiver take a message at a time, each as long as its
    bytes take; messages are received in the order in which they arrive. When each rank has sent and received all."""
    ranks = len(ready)
    wire = size / net.bandwidth
    done, arrivals = [], [[] for _ in ready]
    for i, at in enumerate(ready):
        for k in range(1, ranks):
            at += net.overhead + wire
            arrivals[(i + k) % ranks].append(at + net.latency - wire)  # its first byte
        done.append(at)
    for j, times in enumerate(arrivals):
        free = ready[j]
        for first in sorted(times):
            free = max(first, free) + wire
        done[j] = max(done[j], free)
    return done


def simulate(network, net, ranks, own=1, faster=1.0, spread=(1.0,), steps=1, seed=1):
    """Mean seconds of a step of which each rank takes a random one of the factors `spread` for what it computes."""
    draw = random.Random(seed)
    at = [0.0] * ranks
    for _ in range(steps):
        at = [t + draw.choice(spread) * (network.shard * own + network.once) / faster for t in at]
        for e in EXCHANGES:
            at = simulate_exchange(net, at, message_bytes(network, e, ranks, own)) if ranks > 1 else at
    return max(at) / steps


def line_through(points):
    """Least squares: offset and slope."""
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points)
    return my - slope * mx, slope


def interpolate(table, size):
    """Seconds of a size between measured ones: linear in the size."""
    table = sorted(table)
    if size <= table[0][0]:
        return table[0][1]
    for (x0, y0), (x1, y1) in zip(table, table[1:]):
        if size <= x1:
            return y0 + (y1 - y0) * (size - x0) / (x1 - x0)
    (x0, y0), (x1, y1) = table[-2:]
    return y1 * size / x1
