#!/usr/bin/env python3
"""A training of ranks that meets failures, one after the other, and goes on after each under another number of ranks: a
killed rank, a stopped one, SIGTERM to mpirun, a full disk, a rank out of memory, a network that is cut between two hosts
(network namespaces joined by a bridge). Every rank ends in time, the first cause is named, and at the end the network
has the bytes of the unbroken training and nothing is left. usage: test_failures.py FLEXLAB RANK_FAULTS|none [long] MPIRUN=ENGINE..."""
import os
import random
import re
import shutil
import signal
import subprocess
import time

import launch
from launch import ENVIRONMENT, check, read

(FLEXLAB, FAULTS), LONG, ENGINES = launch.arguments(2)
TIMEOUT, MORE = 3, 8  # seconds: that a rank waits for others, and until it has ended
STEPS = 4000 if LONG else 800  # more than the failures let pass
TRAIN = ["train", "--model", "mlp2", "--data", "synthetic:train=1200,test=24", "--batch", "12", "--shards", "6", "--format",
         "flex16+5", "--lr", "0.001", "--epochs", "100", "--max-steps", str(STEPS), "--checkpoint-every", "20", "--quiet"]


# --- two hosts ----------------------------------------------------------------------------------------------------------

# The second host is a network namespace. A line on the standard input cuts it off: its packets vanish, as in a switch. Where
# the network can be made slow, some messages are half received then.
HOSTS = r"""
mount -t sysfs none /sys
ip link set lo up
unshare --net --uts --mount sleep 600 &
export SECOND=$!
while [ "$(readlink /proc/$SECOND/ns/uts)" = "$(readlink /proc/self/ns/uts)" ]; do sleep 0.02; done
ip link add name fl0 type bridge && ip addr add 10.77.0.1/24 dev fl0 && ip link set fl0 up
ip link add name fl2 type veth peer name eth2 netns $SECOND && ip link set fl2 master fl0 up
nsenter --target $SECOND --net --uts --mount sh -c 'mount -t sysfs none /sys; hostname second
    ip link set lo up; ip link set eth2 up; ip addr add 10.77.0.2/24 dev eth2' || exit 99
tc qdisc add dev fl2 root tbf rate 200mbit burst 64kb latency 500ms 2> /dev/null
"$@" < /dev/null &
read word && ip link set fl2 nomaster
wait $!
"""
# What mpirun takes for ssh.
AGENT = r"""#!/bin/sh
while case "$1" in -*) true;; *) false;; esac; do shift; done
host=$1
shift
[ "$host" = 10.77.0.1 ] && exec sh -c "$*"
exec nsenter --target $SECOND --net --uts --mount sh -c "$*"
"""
ALONE = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net", "--uts", "--mount", "--pid", "--fork",
         "--kill-child", "--mount-proc", "sh", "-c", HOSTS, "hosts"]


def can_cut():
    if not all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip", "hostname")):
        return False
    return subprocess.run([*ALONE, "true"], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def on_hosts(engine, place):
    """Words and environment of an mpirun that starts one rank on each host."""
    agent = os.path.join(place, "agent")
    with open(agent, "w") as file:
        file.write(AGENT)
    os.chmod(agent, 0o755)
    if "mpich" in engine[0]:
        return (["-hosts", "10.77.0.1,10.77.0.2"],
                {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent, "HYDRA_IFACE": "fl0", "UCX_TLS": "tcp,self"})
    return (["--host", "10.77.0.1:1,10.77.0.2:1"],
            {"OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24",
             "OMPI_MCA_oob_tcp_if_include": "10.77.0.0/24"})


# --- ranks --------------------------------------------------------------------------------------------------------------

def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = re.search(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)", file.read())
    return int(found[1]) if found else -1


def ranks(place):
    """The processes of a training in that place, by rank."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if place.encode() in read("/proc", pid, "cmdline") and read("/proc", pid, "comm") == b"flexlab\n":
                found[rank_of(pid)] = int(pid)
        except OSError:  # it has ended meanwhile
            pass
    return found


def wait_for(condition, seconds):
    end = time.time() + seconds
    while not condition() and time.time() < end:
        time.sleep(0.01)
    return condition()


class Training:
    """One training, begun and resumed under mpirun."""

    def __init__(self, engine, place):
        self.engine, self.place, self.out, self.tmp = engine, place, os.path.join(place, "out"), os.path.join(place, "tmp")
        os.mkdir(self.tmp)

    def stamp(self):
        path = os.path.join(self.out, "flexlab.resume", "resume.safetensors")
        return os.stat(path).st_mtime_ns if os.path.exists(path) else None

    def command(self):
        return [FLEXLAB, "train", "--resume", self.out, "--quiet"] if self.stamp() else [FLEXLAB, *TRAIN, "--out", self.out]

    def start(self, count, limits=(), hosts=False, **more):
        """limits: for some ranks, the words before their command."""
        words, env = on_hosts(self.engine, self.place) if hosts else ([], {})
        command = self.command()
        if hosts:  # what the second host says does not arrive
            command = ["sh", "-c", 'exec "$@" 2>> $0.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}', os.path.join(self.place, "said"), *command]
        program = [*(ALONE if hosts else []), self.engine[0], *words]
        for r in range(count if limits else 1):
            program += ([":"] if r else []) + ["-n", str(1 if limits else count), *dict(limits).get(r, []), *command]
        self.errors = open(os.path.join(self.place, "errors"), "w+")
        self.child = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=self.errors, stderr=self.errors, start_new_session=True,
                                      env={**ENVIRONMENT, **env, "TMPDIR": self.tmp, "FLEXLAB_MPI_LIBRARY": self.engine[1],
                                           "FLEXLAB_GROUP_TIMEOUT": str(TIMEOUT), **more})

    def goes_on(self):
        """Whether it has written another checkpoint."""
        before = self.stamp()
        return wait_for(lambda: self.stamp() != before or self.child.poll() is not None, 60) and self.child.poll() is None

    def ends(self, what, *expected, seconds=10 * TIMEOUT + MORE):
        """All ranks end by themselves and say why. mpirun may wait for a host that it does not reach."""
        began = time.time()
        wait_for(lambda: self.child.poll() is not None or (time.time() > began + 1 and not ranks(self.out)), seconds)
        took, left = time.time() - began, ranks(self.out)
        wait_for(lambda: self.child.poll() is not None, 1)
        status = self.child.poll()
        if status is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.errors.seek(0)
        told = self.errors.read()
        self.errors.close()
        for rank in range(2):
            said = os.path.join(self.place, f"said.{rank}")
            if os.path.exists(said):
                told += read(said).decode()
                os.remove(said)
        wait_for(lambda: not ranks(self.out), 2)
        print(f"{what}: {took:.1f} s", flush=True)
        check(took < TIMEOUT + MORE or NOTHING not in expected or f"after {10 * TIMEOUT} seconds" in told, what, "took", took, told)
        check(not left, what, "ranks are left after", took, left, told)
        check(status != 0 or what in ("SIGTERM to mpirun", "a slow disk"), what, "mpirun has status 0:", told)
        for pattern in expected:
            check(re.search(pattern, told), what, "expected", pattern, "found", told)

    def fails(self, what, count, inject, *expected, **how):
        self.start(count, **how)
        if self.goes_on():
            inject(self)
        else:
            check(False, what, "no checkpoint before the failure")
        self.ends(what, *expected)

    def completes(self, what, count, seconds=300):
        if not self.stamp() and os.path.exists(os.path.join(self.out, "last.safetensors")):
            return  # it was quicker than the last failure
        self.start(count)
        try:
            self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.errors.seek(0)
        told = self.errors.read()
        self.errors.close()
        check(self.child.returncode == 0, what, self.child.returncode, told)

    def is_whole(self, whole):
        check(read(self.out, "last.safetensors") == read(whole, "last.safetensors"), "the network differs from the unbroken one")
        left = [name for name in os.listdir(self.tmp) if name.startswith("flexlab-rank-")]
        left += [name for name in os.listdir(self.out) if name.startswith((".flexlab", "flexlab.")) or name.endswith(".part")]
        check(not left, "a training leaves", left)


# --- failures -----------------------------------------------------------------------------------------------------------

# Where ranks work for unequally long they wait ten times as long.
NOTHING = (rf"rank \d of \d, .*(step \d+|after \d+ steps).*: after {TIMEOUT} seconds nothing from rank"
           rf"|rank \d of \d, the (evaluation|checkpoint) after \d+ steps.*: after {10 * TIMEOUT} seconds nothing from rank")


def send(number, rank):
    def inject(training):
        found = ranks(training.out)
        check(rank in found, "rank", rank, "is not there:", found)
        if rank in found:
            os.kill(found[rank], number)
    return inject


def cut(training):
    time.sleep(0.1)  # else others may wait for the checkpoint, ten times as long
    training.child.stdin.write(b"cut\n")
    training.child.stdin.flush()


def faulty(**how):
    return ["env", f"LD_PRELOAD={FAULTS}", *(f"FAULT_{name.upper()}={value}" for name, value in how.items())]


def every_failure(t, draw):
    count = draw.choice((2, 3))
    t.fails("a killed rank", 3, send(signal.SIGKILL, draw.randrange(3)), r"signal 9|SIGNAL: 9|EXIT CODE: 9")
    t.fails("a stopped rank", count, send(signal.SIGSTOP, draw.randrange(1, count)), NOTHING)
    if os.path.basename(FAULTS) == "none":
        return print("no faults are injected: a sanitizer must be loaded before all else")
    t.start(count, {0: faulty(full=1)})
    t.ends("a full disk", r"cannot write .*: No space left on device", seconds=20 + MORE)
    for memory in (2, 12) if LONG else (12,):
        t.start(2, {1: faulty(memory=memory * 1000000)})
        t.ends("no memory", r"out of memory\n.*said by rank 1 of 2|rank 1: .*no memory for", seconds=20 + MORE)


def rarer_failures(t):
    """A rank whose MPI_Abort does not return ends nevertheless; while rank 0 writes, the others wait ten times as long."""
    if os.path.basename(FAULTS) == "none":
        return
    t.fails("an abort that does not return", 3, send(signal.SIGSTOP, 1), NOTHING, limits={r: faulty() for r in range(3)})
    t.start(2, {1: ["sh", "-c", "sleep 300"]}, FLEXLAB_GROUP_TIMEOUT="1")
    t.ends("a rank that never begins", "MPI does not begin", seconds=10 + MORE)
    t.start(2, {0: faulty(seconds=2 * TIMEOUT)})
    check(t.goes_on() and t.goes_on(), "ranks do not wait for a checkpoint on a slow disk")
    os.kill(t.child.pid, signal.SIGTERM)
    t.ends("a slow disk", seconds=60)


def goes_on_after_all(engine, place):
    cuts = can_cut()
    if not cuts:
        print("no network is cut: network namespaces are not allowed here (unshare --user --net)")
    draw = random.Random(time.time_ns() if LONG else 5)
    whole = os.path.join(place, "whole")
    alone = subprocess.Popen([FLEXLAB, *TRAIN, "--out", whole], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env=ENVIRONMENT)
    try:
        t = fails_and_goes_on(engine, place, cuts, draw)
        told = alone.communicate()[1]
    finally:
        alone.kill()
        alone.wait()
    check(alone.returncode == 0, told)
    t.is_whole(whole)


def fails_and_goes_on(engine, place, cuts, draw):
    t = Training(engine, place)
    for _ in range(4 if LONG else 1):
        every_failure(t, draw)
        if cuts:
            t.fails("a cut network", 2, cut, NOTHING, hosts=True)
        # the last, because ranks go on until mpirun has told them
        t.fails("SIGTERM to mpirun", 2, lambda t: os.kill(t.child.pid, signal.SIGTERM))
    if LONG:
        rarer_failures(t)
    t.completes("what is left", 2)
    return t


launch.under_each(ENGINES if LONG else ENGINES[:1], goes_on_after_all)
