/* ptx_run.cpp - launches: blocks, warps, and which lanes go on. */
#include "ptx.h"

#include <algorithm>
#include <cstdlib>

namespace ptx {
namespace {

std::vector<uint64_t> &counts = *new std::vector<uint64_t>;
uint64_t total;

uint32_t lanes_at(const Warp &w, uint32_t pc) {
    int8_t there[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        there[i] = w.pc[i] == pc ? -1 : 0;
    return lanes_of(there);
}

/* The first place from `pc` on where some of the lanes are; ALL: there is none. */
uint32_t first_place(const Warp &w, uint32_t lanes, uint32_t pc) {
    uint32_t first = ALL;
    for (uint32_t i = 0; i < LANES; i++) {
        const uint32_t at = w.pc[i] | ((lanes >> i & 1) - 1), place = at < pc ? (uint32_t)ALL : at;
        first = place < first ? place : first;
    }
    return first;
}

/* The lanes go on at a place, where they run, or stay. */
void send(Warp &w, uint32_t lanes, uint32_t pc, bool run = true) {
    for (uint32_t i = 0; i < LANES; i++)
        w.pc[i] = lanes >> i & 1 ? pc : w.pc[i];
    w.running = run ? w.running | lanes : w.running & ~lanes;
    w.waiting &= ~lanes;
}

/* The lanes whose result of an instruction counts as written. What was computed from registers that were never written
 * may not decide anything: compilers compute ahead, and drop what is not needed. */
uint32_t values_written(Warp &w, const Insn &in, uint32_t mask) {
    auto written = [&](const Operand &o) { return o.constant ? (uint32_t)ALL : w.defined[o.number]; };
    const uint32_t *const defined = w.defined.data(), first = in.guard >= 0;
    uint32_t bad = first ? ~defined[in.reads.of[0]] & mask : 0, good = ALL; /* of a guard even where it excludes */
    if (in.flow == Flow::CHOICE) {
        const uint32_t p = w.predicate(in.o[3]);
        good = written(in.o[3]) & ((p & written(in.o[1])) | (~p & written(in.o[2])));
    } else {
        for (uint32_t i = first; i < in.reads.count; i++)
            good &= defined[in.reads.of[i]];
    }
    if (in.flow == Flow::AND || in.flow == Flow::OR)
        for (int i = 1; i < 3; i++)
            good |= written(in.o[i]) & (w.predicate(in.o[i]) ^ (in.flow == Flow::AND ? (uint32_t)ALL : 0));
    if (in.flow == Flow::NEEDED || in.kind != Kind::PLAIN)
        bad |= ~good & w.exec;
    if (bad)
        find("a register that was never written decides", place(w, in, __builtin_ctz(bad)));
    return in.flow == Flow::NEEDED ? (uint32_t)ALL : good;
}

bool may_be_in_frame(const Insn &in) {
    return in.accesses && in.space != Space::GLOBAL && in.space != Space::SHARED;
}

/* The state of an element in the frames of some lanes: a store changes it to whether it was written, a load is good
 * where all its bytes were. */
void follow_element(const Warp &w, uint64_t at, uint32_t bytes, uint32_t lanes, bool loads, uint32_t written,
                    uint32_t *good) {
    uint64_t *const state = w.row_of_frames(w.frame_bytes + at);
    const uint64_t mask = ~(uint64_t)0 >> (64 - 8 * bytes) << at % 8 * 8, all = mask & 0x0101010101010101u;
    uint32_t known = 0;
    if (loads) {
        for (uint32_t i = 0; i < LANES; i++)
            known |= (uint32_t)((state[i] & mask) == all) << i;
        *good &= known | ~lanes;
    } else {
        for (uint32_t i = 0; i < LANES; i++)
            state[i] = lanes >> i & 1 ? (state[i] & ~mask) | (written >> i & 1 ? all : 0) : state[i];
    }
}

/* Local memory hands on byte by byte what was not written: compilers copy structures with their padding. good: of each
 * element of a load the lanes whose bytes were. */
void follow_frame(Warp &w, const Insn &in, uint32_t mask, uint32_t *good) {
    const uint32_t bad = (in.guard >= 0 ? ~w.defined[in.reads.of[0]] & mask : 0) |
                         (in.o[0].constant ? 0 : ~w.defined[in.o[0].number] & w.exec);
    if (bad)
        find("a register that was never written decides", place(w, in, __builtin_ctz(bad)));
    const bool loads = in.writes.count != 0;
    const uint64_t base = in.space == Space::GENERIC ? FRAME_WINDOW + FRAME_AT : FRAME_AT;
    uint64_t addresses[LANES];
    addresses_of(w, in, addresses);
    for (uint32_t left = w.exec & ~bad; left;) {
        const int i = __builtin_ctz(left);
        const uint32_t lanes = is_one_address(addresses, left) ? left : 1u << i;
        const uint64_t at = addresses[i] - base;
        const bool inside =
            at < w.frame_bytes && at + (uint64_t)in.bytes * in.count <= w.frame_bytes && at % in.bytes == 0;
        for (uint32_t j = 0; j < in.count; j++) {
            const Operand &o = in.more[j];
            const uint32_t written = loads || o.constant ? (uint32_t)ALL : w.defined[o.number];
            if (inside)
                follow_element(w, at + j * in.bytes, in.bytes, lanes, loads, written, &good[j]);
            else if (lanes & ~written)
                find("a register that was never written decides", place(w, in, __builtin_ctz(lanes & ~written)));
        }
        left &= ~lanes;
    }
}

/* The lanes that an instruction for several needs: those of its mask, or the whole warp. */
uint32_t lanes_needed(Warp &w, const Insn &in, uint32_t arrived) {
    if (in.kind == Kind::BARRIER)
        return w.live;
    const int some = __builtin_ctz(arrived);
    if (in.action != shuffle && in.action != reduce) {
        if (w.live != ALL)
            find("an instruction for a whole warp, of which lanes have ended", place(w, in, some));
        return w.live;
    }
    const auto &of_mask = in.o[in.action == shuffle ? 4 : 2];
    const uint32_t *const masks = w.at<uint32_t>(of_mask), mask = masks[some];
    if (of_mask.constant && mask == ALL && w.live == ALL)
        return ALL;
    for (const int i : Lanes{arrived}) {
        if (masks[i] != mask || !(mask >> i & 1))
            find(masks[i] != mask ? "lanes of a warp with different masks" : "a lane that is not in its mask",
                 place(w, in, i));
    }
    if (mask & ~w.live)
        find("a mask with lanes that have ended", place(w, in, some));
    return mask & w.live;
}

/* Lanes that wait may have been waiting for those that ended since. */
bool wake(Warp &w, const Insn *program) {
    for (uint32_t waiting = w.waiting; waiting;) {
        const uint32_t pc = w.pc[__builtin_ctz(waiting)], group = waiting & lanes_at(w, pc);
        const uint32_t need = lanes_needed(w, program[pc], group);
        if ((group & need) == need) {
            send(w, group, pc);
            return true;
        }
        waiting &= ~group;
    }
    return false;
}

/* Runs a warp until its lanes have ended (true) or are at a barrier. In order: of lanes at different places those
 * with the first instruction go on, so that lanes meet again where the compiler meant it. Diverging: any do, for a
 * while.
 */
template <bool registers> bool run_warp(Warp &w) {
    const Insn *const program = w.block->kernel->program.data();
    const bool diverge = options().diverge, banks = options().banks;
    uint64_t *const counted = counts.data();
    for (;;) {
        if (!w.running) {
            if (!w.waiting)
                return !w.live;
            if (!wake(w, program))
                throw Fault{719, "lanes wait for each other at different places, kernel " + w.block->kernel->name +
                                     ": " + std::string(program[w.pc[__builtin_ctz(w.waiting)]].text)};
        }
        const uint32_t ready = w.running;
        uint32_t pc = ALL, stop = ALL, mask, budget = ALL;
        if (diverge) {
            uint32_t chosen = (uint32_t)draw(w.random) % (uint32_t)__builtin_popcount(ready);
            uint32_t lanes = ready;
            while (chosen--)
                lanes &= lanes - 1;
            pc = w.pc[__builtin_ctz(lanes)];
            mask = ready & lanes_at(w, pc);
            const uint64_t random = draw(w.random);
            if (random % 4 == 0 && (mask & random >> 32))
                mask &= (uint32_t)(random >> 32); /* some stay behind */
            budget = 1 + (uint32_t)(random >> 8) % 60;
        } else {
            pc = first_place(w, ready, 0);
            mask = ready & lanes_at(w, pc);
            stop = first_place(w, ready | w.waiting, pc + 1);
        }
        for (;;) {
            if (pc == stop || !budget--) {
                send(w, mask, pc);
                break;
            }
            const Insn &in = program[pc];
            total++;
            counted[in.opcode]++;
            w.exec = mask;
            if (in.guard >= 0)
                w.exec &= in.guard_is_not ? ~w.predicates[in.guard] : w.predicates[in.guard];
            if (banks && w.exec)
                count_wavefronts(w, in);
            uint32_t written = ALL, elements[4] = {ALL, ALL, ALL, ALL};
            if (registers && in.simple)
                for (uint32_t i = 0; i < in.reads.count; i++)
                    written &= w.defined[in.reads.of[i]];
            else if (registers && may_be_in_frame(in))
                follow_frame(w, in, mask, elements);
            else if (registers)
                written = values_written(w, in, mask);
            if (in.kind == Kind::PLAIN) {
                if (w.exec)
                    in.action(w, in);
                for (uint32_t i = 0; registers && i < in.writes.count; i++) {
                    uint32_t &defined = w.defined[in.writes.of[i]];
                    defined = (defined & ~w.exec) | (w.exec & written & elements[i]);
                }
                pc++;
                continue;
            }
            const uint32_t others = mask & ~w.exec;
            if (!w.exec) {
                pc++;
                continue;
            }
            if (in.kind == Kind::BRANCH) {
                if (in.how && others)
                    find("bra.uni of some lanes", place(w, in, __builtin_ctz(w.exec)));
                if (!others && in.target < stop) {
                    pc = in.target;
                    continue;
                }
                send(w, w.exec, in.target);
                send(w, others, pc + 1);
                break;
            }
            if (in.kind == Kind::TOGETHER || in.kind == Kind::BARRIER) {
                const uint32_t arrived = w.exec | (w.waiting ? w.waiting & lanes_at(w, pc) & ~mask : 0);
                const uint32_t need = lanes_needed(w, in, arrived);
                if (others)
                    send(w, others, pc + 1);
                if ((arrived & need) != need) {
                    send(w, w.exec, pc, false);
                    w.waiting |= w.exec;
                    break;
                }
                w.exec = arrived;
                if (in.kind == Kind::BARRIER) {
                    send(w, arrived, pc + 1, false);
                    break;
                }
                in.action(w, in);
                if (registers)
                    for (uint32_t r : in.writes)
                        w.defined[r] |= w.exec;
                pc++;
                if (arrived == mask)
                    continue;
                send(w, arrived, pc);
                break;
            }
            if (in.kind == Kind::EXIT) {
                w.live &= ~w.exec;
                send(w, w.exec, pc, false);
                send(w, others, pc + 1);
                break;
            }
            if (in.kind == Kind::TRAP)
                fault(719, "a trap", w, in, __builtin_ctz(w.exec));
            send(w, others, pc + 1);
            for (const int i : Lanes{w.exec}) {
                uint32_t &back = w.returns[in.function * LANES + (uint32_t)i];
                if (in.kind == Kind::CALL)
                    back = pc + 1;
                w.pc[i] = in.kind == Kind::CALL ? in.target : back;
            }
            break;
        }
    }
}

/* What blocks use one after the other. */
struct Scratch {
    std::vector<unsigned char> registers, frames;
    std::vector<uint32_t> predicates;
    std::vector<Warp> warps;
    Block block;
};
Scratch &scratch = *new Scratch;

unsigned char *aligned(std::vector<unsigned char> &memory, size_t bytes) {
    if (memory.size() < bytes + 64)
        memory.assign(bytes + 64, 0xa5);
    return (unsigned char *)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
}

/* Of a warp, with a byte for each that tells whether it was written. */
size_t frame_bytes(const Kernel &k) {
    return (size_t)k.frame_bytes * LANES * (options().registers ? 2 : 1);
}

/* Prepares warp `number` of the block, with the registers of place `file`. */
void begin(uint32_t number, uint32_t file, uint64_t &random) {
    Block &b = scratch.block;
    const Kernel &k = *b.kernel;
    Warp &w = scratch.warps[number];
    const size_t step = ((size_t)k.register_bytes + 63) / 64 * 64, frame = frame_bytes(k);
    w.bank[0] = (unsigned char *)(((uintptr_t)scratch.registers.data() + 63) & ~(uintptr_t)63) + step * file;
    w.bank[1] = (unsigned char *)k.constants.data();
    w.predicates = scratch.predicates.data() + (size_t)k.predicates * file;
    w.frame = (unsigned char *)(((uintptr_t)scratch.frames.data() + 63) & ~(uintptr_t)63) + frame * file;
    w.frame_bytes = k.frame_bytes;
    w.block = &b;
    w.number = number;
    w.carry = 0;
    w.random = draw(random);
    const uint32_t lanes = std::min<uint32_t>(LANES, b.threads - number * LANES);
    w.live = lanes == LANES ? ALL : (1u << lanes) - 1;
    w.running = w.live;
    w.waiting = 0;
    std::fill(w.pc, w.pc + LANES, 0);
    std::fill(w.committed, w.committed + LANES, 0);
    w.copies.clear();
    w.returns.resize((size_t)k.functions * LANES);
    memset(w.frame, (int)(draw(w.random) & 255), (size_t)k.frame_bytes * LANES);
    if (options().registers) {
        memset(w.frame + (size_t)k.frame_bytes * LANES, 0, (size_t)k.frame_bytes * LANES);
        w.defined.assign(k.numbers, 0);
        std::fill(w.defined.begin(), w.defined.begin() + 13, (uint32_t)ALL);
    }
    const uint32_t *const size = b.launch->block, *const grid = b.launch->grid;
    for (uint32_t i = 0; i < LANES; i++) {
        const uint32_t t = number * LANES + i;
        const uint32_t id[3] = {t % size[0], t / size[0] % size[1], t / size[0] / size[1]};
        const uint32_t *const special[4] = {id, size, b.id, grid};
        for (uint32_t j = 0; j < 13; j++)
            ((uint32_t *)w.bank[0])[LANES * j + i] = j == 12 ? i : special[j / 3][j % 3];
    }
}

void run_block(const Launch &l, uint64_t number) {
    Block &b = scratch.block;
    const Kernel &k = *l.kernel;
    b.launch = &l;
    b.kernel = &k;
    b.number = number;
    b.id[0] = (uint32_t)(number % l.grid[0]);
    b.id[1] = (uint32_t)(number / l.grid[0] % l.grid[1]);
    b.id[2] = (uint32_t)(number / l.grid[0] / l.grid[1]);
    b.threads = l.block[0] * l.block[1] * l.block[2];
    b.epoch++; /* of all blocks: what earlier ones accessed is of other epochs */
    b.shared_bytes = (k.static_shared ? (k.static_shared + 127) / 128 * 128 : 0) + l.dynamic_shared;
    if (b.shared.size() < b.shared_bytes) /* what is read before it is written is found by its state */
        b.shared.resize(b.shared_bytes, 0xcd);
    b.shared_state.assign(b.shared_bytes, FREE);
    if (b.writer.size() <= b.shared_bytes) {
        b.writer.resize(b.shared_bytes + 1);
        b.reader.resize(b.shared_bytes + 1);
    }
    const uint32_t warps = (b.threads + LANES - 1) / LANES, files = k.barriers ? warps : 1;
    aligned(scratch.registers, ((size_t)k.register_bytes + 63) / 64 * 64 * files);
    aligned(scratch.frames, frame_bytes(k) * files);
    if (scratch.predicates.size() < (size_t)k.predicates * files)
        scratch.predicates.resize((size_t)k.predicates * files);
    if (scratch.warps.size() < warps)
        scratch.warps.resize(warps);
    uint64_t random = options().seed * 0x9e3779b97f4a7c15u ^ l.number << 24 ^ number;
    std::vector<uint32_t> order(warps);
    for (uint32_t i = 0; i < warps; i++)
        order[i] = i;
    auto shuffle_warps = [&] {
        for (uint32_t j = warps; j-- > 1;)
            std::swap(order[j], order[draw(random) % (j + 1)]);
    };
    auto *const run_one = options().registers ? run_warp<true> : run_warp<false>;
    shuffle_warps();
    for (uint32_t i = 0; k.barriers && i < warps; i++)
        begin(i, i, random);
    std::vector<bool> ended(warps);
    for (;;) {
        uint32_t waiting = 0;
        for (uint32_t i : order) {
            if (ended[i])
                continue;
            if (!k.barriers)
                begin(i, 0, random);
            ended[i] = run_one(scratch.warps[i]);
            waiting += !ended[i];
        }
        if (!waiting)
            break;
        b.epoch++;
        for (uint32_t i = 0; i < warps; i++) {
            Warp &w = scratch.warps[i];
            if (ended[i] || (uint32_t)__builtin_popcount(w.live) < std::min<uint32_t>(LANES, b.threads - i * LANES))
                find("a barrier that threads do not reach, which have ended", "kernel " + k.name);
            w.running = w.live;
        }
        shuffle_warps();
    }
    for (uint32_t i = 0; i < warps; i++)
        if (!scratch.warps[i].copies.empty())
            find("an asynchronous copy that nobody has waited for", "kernel " + k.name);
}

} // namespace

void run(const Launch &l) {
    counts.resize(opcode_names().size());
    std::vector<uint64_t> order((uint64_t)l.grid[0] * l.grid[1] * l.grid[2]);
    for (uint64_t i = 0; i < order.size(); i++)
        order[i] = i;
    uint64_t random = options().seed ^ l.number * 0x2545f4914f6cdd1du;
    for (uint64_t j = order.size(); j-- > 1;)
        std::swap(order[j], order[draw(random) % (j + 1)]);
    const uint64_t before = total;
    l.kernel->launches++;
    for (uint64_t i : order)
        run_block(l, i);
    l.kernel->instructions += total - before;
}

uint64_t instructions_run() {
    return total;
}

void forget_instructions() {
    total = 0;
    std::fill(counts.begin(), counts.end(), 0);
}

const std::vector<uint64_t> &opcode_counts() {
    return counts;
}

} // namespace ptx
