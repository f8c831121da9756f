"""The time of a training step of R ranks, as src/nn/ranks/nn_exchange.c exchanges it: by formula, and by simulation of
each message. For scaling.py.

A step is: S / R shards forward and backward, each with its addition to the sums; what is done once (the update, which
every rank computes for all parameters); and exchanges, each of a message from every rank to every other. Gradients
cross in buckets, of each

    exponents   where a rank has several shards: those of its gradients
    parts       of gradients: to each rank the elements of which it forms the sums; of one shard a rank with its exponents
    sums        rounded, with the statistics of their writes, from each rank to all

and once a step `told`, what a shard tells: loss and moments of normalisations. Buckets are ready one after the other
while backward of the last shard goes on.
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
LEAST_BUCKET, MOST_BUCKET, LEAST_MESSAGE = 128 << 10, 4 << 20, 16 << 10  # bytes: nn_exchange.c
OVERLAP = 0.5  # of a shard's time: from the first bucket that is ready to the last

# parameters: elements; width: bytes of an element of a gradient; shard, once: seconds; told: bytes of a shard; heads,
# marks: bytes of all gradients' exponents and statistics
Network = collections.namedtuple("Network", "name parameters width shard once told heads marks")


def bucket_count(network, ranks):
    """About: a bucket has whole parameters."""
    total = network.parameters * network.width
    enough = max(LEAST_BUCKET, min(total / 4, MOST_BUCKET), LEAST_MESSAGE * ranks)
    return max(1, round(total / enough))


def sum_width(width, own):
    """Bytes of an element of the gradients of a rank's shards: one by one, or their exact sum where it is shorter, 3 bytes
    of integers, a binary32 of floats if the shards are a node of their tree."""
    is_node = own & (own - 1) == 0
    return min(width * own, 3) if width == 2 else 4 if is_node else 4 * own


def message_bytes(network, exchange, ranks, own):
    """From one rank to one other, of all buckets together; own: shards of a rank."""
    return {
        "told": network.told * own,
        "exponents": network.heads * own if own > 1 else 0,
        "parts": network.parameters * sum_width(network.width, own) / ranks + (network.heads if own == 1 else 0),
        "sums": network.parameters * network.width / ranks + network.marks,
    }[exchange]


def of_a_bucket(own):
    return ["exponents", "parts", "sums"] if own > 1 else ["parts", "sums"]


def bytes_sent(network, ranks, own):
    return (ranks - 1) * sum(message_bytes(network, e, ranks, own) for e in ["told", *of_a_bucket(own)])


def exchange_seconds(net, ranks, size, tree=False):
    """A message of that size from each rank to each other. By a tree, which doubles what each rank has in every round,
    there are log2 of as many messages; the bytes are the same."""
    if ranks == 1:
        return 0.0
    messages = math.ceil(math.log2(ranks)) if tree else ranks - 1
    ways = messages if tree else 1  # one after the other
    return ways * net.latency + messages * net.overhead + (ranks - 1) * size / net.bandwidth


def ready(k, buckets, shard, overlap):
    """Seconds from when bucket k of so many is ready to the end of the last shard."""
    return overlap * shard * (1 - (k + 1) / buckets)


def beyond(one, buckets, shard, overlap=OVERLAP):
    """Seconds beyond the end of the last shard, of as many buckets that take so long each, one after the other."""
    at = -math.inf
    for k in range(buckets):
        at = max(at, -ready(k, buckets, shard, overlap)) + one
    return max(at, 0.0)


class Step:
    """The parts of the time of a step. overlap: the part of a shard's time in which buckets become ready; faster: how many
    times as fast as measured a rank computes; tree: told goes by a tree. gradients: what the exchanges of buckets take
    beyond the end of the last shard; under_way: all that they take."""

    def __init__(self, network, net, ranks, shards, overlap=OVERLAP, faster=1.0, tree=False):
        own = shards // ranks
        self.shards = network.shard * own / faster
        self.once = network.once / faster
        buckets = bucket_count(network, ranks)
        one = sum(exchange_seconds(net, ranks, message_bytes(network, e, ranks, own) / buckets) for e in of_a_bucket(own))
        self.small = exchange_seconds(net, ranks, message_bytes(network, "told", ranks, own), tree)
        self.under_way = buckets * one
        self.gradients = beyond(one, buckets, network.shard / faster, overlap)
        self.messages = 0 if ranks == 1 else (1 + buckets * len(of_a_bucket(own))) * (ranks - 1) * net.overhead

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


def simulate_gradients(network, net, ends, own, shard, overlap):
    """When each rank, whose last shard ends at `ends`, has the sums of all buckets."""
    ranks, buckets = len(ends), bucket_count(network, len(ends))
    done = [-math.inf] * ranks
    for k in range(buckets):
        done = [max(d, end - ready(k, buckets, shard, overlap)) for d, end in zip(done, ends)]
        for e in of_a_bucket(own):
            done = simulate_exchange(net, done, message_bytes(network, e, ranks, own) / buckets)
    return [max(d, end) for d, end in zip(done, ends)]


def simulate(network, net, ranks, own=1, faster=1.0, spread=(1.0,), steps=1, seed=1, overlap=OVERLAP):
    """Mean seconds of a step of which each rank takes a random one of the factors `spread` for what it computes."""
    draw = random.Random(seed)
    at = [0.0] * ranks
    for _ in range(steps):
        at = [t + draw.choice(spread) * network.shard * own / faster for t in at]
        if ranks > 1:
            at = simulate_gradients(network, net, at, own, network.shard / faster, overlap)
            at = simulate_exchange(net, at, message_bytes(network, "told", ranks, own))
        at = [t + draw.choice(spread) * network.once / faster for t in at]
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
