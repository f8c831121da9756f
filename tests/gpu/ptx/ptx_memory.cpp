/* ptx_memory.cpp - the spaces of memory, and what is checked at each access: bounds, alignment, reads of what nobody
 * wrote, races. */
#include "ptx.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

namespace ptx {

/* As cudaError_t numbers them. */
enum { ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716 };

constexpr uint64_t SECTOR = 32, CACHE = 50 << 20; /* of an H100's second level */

/* --- devices */

static uint64_t variables_used;
static std::vector<std::pair<uint64_t, std::vector<unsigned char>>> &variables =
    *new std::vector<std::pair<uint64_t, std::vector<unsigned char>>>; /* distance from the end, bytes */
static std::vector<Device> &devices = *new std::vector<Device>;

static unsigned char *map(uint64_t bytes, uint64_t at, int protection) {
    void *const p = mmap((void *)at, bytes, protection,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (p == MAP_FAILED) {
        perror("ptx: memory of a device");
        _Exit(PTX_STATUS);
    }
    return (unsigned char *)p;
}

static void place_variable(Device &d, uint64_t from_end, const std::vector<unsigned char> &bytes) {
    memcpy(d.memory + d.bytes - from_end, bytes.data(), bytes.size());
    memset(d.state + d.bytes - from_end, WRITTEN, bytes.size());
    d.used_by_variables = from_end;
}

Device &device(int number) {
    if (devices.empty()) {
        devices.resize((size_t)options().devices);
        for (size_t i = 0; i < devices.size(); i++) {
            Device &d = devices[i];
            d = Device{(int)i, options().bytes / 4096 * 4096, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
            const int both = PROT_READ | PROT_WRITE;
            d.memory = map(d.bytes, 0, both);
            d.state = map(d.bytes, 0, both);
            d.writer = options().races ? (uint64_t *)map(d.bytes * 16, 0, both) : nullptr;
            d.reader = d.writer ? d.writer + d.bytes : nullptr;
            const uint64_t sectors = (d.bytes + SECTOR - 1) / SECTOR * sizeof(Sector);
            d.sectors = options().traffic ? (Sector *)map((sectors + 4095) / 4096 * 4096, 0, both) : nullptr;
            map(d.bytes, d.at(), PROT_NONE); /* where the host faults */
        }
    }
    for (Device &d : devices)
        for (auto &[from_end, bytes] : variables)
            if (from_end > d.used_by_variables)
                place_variable(d, from_end, bytes);
    return devices.at((size_t)number);
}

/* All devices have it at the same distance from their ends; its address is that of device 0. */
uint64_t new_variable(const std::vector<unsigned char> &bytes) {
    variables_used += (bytes.size() + 511) / 256 * 256; /* with a gap */
    variables.push_back({variables_used, bytes});
    const Device &d = device(0);
    return d.at() + d.bytes - variables_used;
}

/* --- texts */

std::string place(const Warp &w, const Insn &in, int lane) {
    char head[100];
    snprintf(head, sizeof head, ", block (%u,%u,%u), thread %u: ", w.block->id[0], w.block->id[1], w.block->id[2],
             w.thread(lane));
    return "kernel " + w.block->kernel->name + head + std::string(in.text);
}

void fault(int error, const std::string &what, const Warp &w, const Insn &in, int lane) {
    throw Fault{error, what + ": " + place(w, in, lane)};
}

static std::string hex(uint64_t x) {
    char text[24];
    snprintf(text, sizeof text, "0x%llx", (unsigned long long)x);
    return text;
}

/* --- global memory */

/* Races of a launch, byte by byte; atomic operations are in order among each other. A word: the launch, and a thread,
 * or 1: an atomic operation, 0: several threads. */
constexpr uint64_t WHO = ((uint64_t)1 << 36) - 1;
static uint64_t in_launch(const Warp &w) {
    return w.block->launch->number << 36;
}
static uint64_t this_thread(const Warp &w, int lane) {
    return w.block->number * 1024 + w.thread(lane) + 2;
}

static void check_race(Warp &w, const Insn &in, int lane, uint64_t at, uint32_t bytes, Access how) {
    const uint64_t launch = in_launch(w), me = this_thread(w, lane), who = how == Access::ATOMIC ? 1 : me;
    for (uint32_t i = 0; i < bytes; i++) {
        uint64_t &writer = w.block->launch->device->writer[at + i], &reader = w.block->launch->device->reader[at + i];
        const bool written = (writer & ~WHO) == launch, was_read = (reader & ~WHO) == launch;
        if (written && (writer & WHO) != who && (writer & WHO) != me)
            find("a race in global memory",
                 (how == Access::READ ? "a read, after a write: " : "a write, after another: ") + place(w, in, lane));
        if (how == Access::READ) {
            if (written && in.how == 1)
                find("ld.nc of what the launch writes", place(w, in, lane));
            reader = launch | (was_read && (reader & WHO) != me ? 0 : me);
            continue;
        }
        if (was_read && (reader & WHO) != me)
            find("a race in global memory", "a write, after a read: " + place(w, in, lane));
        writer = launch | who;
    }
}

/* The same where there is no race. false: nothing was done. */
template <Access how, uint32_t bytes>
static inline bool without_race(const Warp &w, const Insn &in, const Device &d, int lane, uint64_t at) {
    const uint64_t launch = in_launch(w), mine = launch | this_thread(w, lane);
    uint64_t *const writer = d.writer + at, *const reader = d.reader + at;
    bool others = false;
    for (uint32_t i = 0; i < bytes; i++) {
        others |= (writer[i] ^ launch) <= WHO && (writer[i] != mine || in.how == 1);
        others |= how == Access::WRITE && (reader[i] ^ launch) <= WHO && reader[i] != mine;
    }
    if (others)
        return false;
    for (uint32_t i = 0; i < bytes; i++)
        if (how == Access::WRITE)
            writer[i] = mine;
        else
            reader[i] = (reader[i] ^ launch) <= WHO && reader[i] != mine ? launch : mine;
    return true;
}

/* What a launch uses first comes from memory, unless fewer bytes than the cache has were used since the last launch
 * that used it. What it writes goes there once, when the cache gives it up: it is counted when it is written. */
static void pass_cache(const Warp &w, const Device &d, uint64_t at, bool writes) {
    static uint64_t used;
    const Launch &launch = *w.block->launch;
    Sector &s = d.sectors[at / SECTOR];
    if (s.launch != launch.number) {
        const bool kept = s.launch && used - s.at <= CACHE;
        launch.kernel->traffic += kept || writes ? 0 : SECTOR;
        s = {launch.number, used += SECTOR, kept && s.changed};
    }
    launch.kernel->traffic += writes && !s.changed ? SECTOR : 0;
    s.changed |= writes;
}

static inline bool all_written(const unsigned char *state, uint32_t bytes) {
    uint64_t a = 0, b = 0;
    switch (bytes) {
    case 1:
        return *state == WRITTEN;
    case 2:
        memcpy(&a, state, 2);
        return a == 0x0202;
    case 4:
        memcpy(&a, state, 4);
        return a == 0x02020202u;
    case 8:
        memcpy(&a, state, 8);
        return a == 0x0202020202020202u;
    default:
        memcpy(&a, state, 8);
        memcpy(&b, state + 8, 8);
        return (a & b) == 0x0202020202020202u && (a | b) == 0x0202020202020202u;
    }
}

/* Kernels are decoded once, and have the addresses of variables on device 0. */
static uint64_t place_in(const Device &d, uint64_t address) {
    const uint64_t there = address - DEVICES_AT;
    return there < d.bytes && there >= d.bytes - d.used_by_variables ? there : address - d.at();
}

unsigned char *reach_global(Warp &w, const Insn &in, int lane, uint64_t address, uint32_t bytes, Access how) {
    Device &d = *w.block->launch->device;
    const uint64_t at = place_in(d, address);
    if (at >= d.bytes || at + bytes > d.bytes)
        fault(ILLEGAL_ADDRESS, "address " + hex(address) + " is not the device's", w, in, lane);
    if (address % bytes)
        fault(MISALIGNED_ADDRESS, "address " + hex(address) + " is no multiple of " + std::to_string(bytes), w, in,
              lane);
    unsigned char *const state = d.state + at;
    if (how == Access::WRITE) {
        for (uint32_t i = 0; i < bytes; i++)
            if (state[i] == FREE)
                fault(ILLEGAL_ADDRESS, "a write to " + hex(address) + ", which is not allocated", w, in, lane);
        memset(state, WRITTEN, bytes);
    } else if (!all_written(state, bytes)) {
        for (uint32_t i = 0; i < bytes; i++)
            if (state[i] == FREE)
                fault(ILLEGAL_ADDRESS, "a read of " + hex(address) + ", which is not allocated", w, in, lane);
        find("a read of global memory that was never written", place(w, in, lane));
    }
    if (d.writer)
        check_race(w, in, lane, at, bytes, how);
    if (d.sectors)
        pass_cache(w, d, at, how != Access::READ);
    return d.memory + at;
}

/* --- shared memory */

uint32_t shared_offset(Warp &w, const Insn &in, int lane, uint64_t address, uint32_t bytes) {
    const uint64_t at = address - SHARED_AT;
    const uint32_t room = w.block->shared_bytes;
    if (at >= room || at + bytes > room)
        fault(ILLEGAL_ADDRESS, "shared address " + hex(at) + " is beyond " + std::to_string(room) + " bytes", w, in,
              lane);
    if (at % bytes)
        fault(MISALIGNED_ADDRESS, "shared address " + hex(at) + " is no multiple of " + std::to_string(bytes), w, in,
              lane);
    return (uint32_t)at;
}

void read_shared(Warp &w, const Insn &in, int lane, uint32_t at, uint32_t bytes) {
    Block &b = *w.block;
    const uint32_t bits = b.kernel->grain_bits;
    const uint64_t me = w.thread(lane), epoch = b.epoch << 16;
    if (!all_written(&b.shared_state[at], bytes))
        for (uint32_t i = 0; i < bytes; i++)
            if (b.shared_state[at + i] != SHARED_WRITTEN) {
                find(b.shared_state[at + i] == SHARED_ON_ITS_WAY
                         ? "a read of shared memory that an asynchronous copy still writes"
                         : "a read of shared memory that was never written",
                     place(w, in, lane));
                break;
            }
    for (uint32_t g = at >> bits; g <= (at + bytes - 1) >> bits; g++) {
        if ((b.writer[g] & ~(uint64_t)0xffff) == epoch && (b.writer[g] & 0xffff) != me)
            find("a race in shared memory", "a read, after a write: " + place(w, in, lane));
        const bool was_read = (b.reader[g] & ~(uint64_t)0xffff) == epoch;
        b.reader[g] = epoch | (was_read && (b.reader[g] & 0xffff) != me ? 0xffff : me);
    }
}

void write_shared(Warp &w, const Insn &in, int lane, uint32_t at, uint32_t bytes, unsigned char state) {
    Block &b = *w.block;
    const uint32_t bits = b.kernel->grain_bits;
    const uint64_t me = w.thread(lane), epoch = b.epoch << 16;
    for (uint32_t i = 0; i < bytes; i++) {
        if (b.shared_state[at + i] == SHARED_ON_ITS_WAY)
            find("a write of shared memory that an asynchronous copy still writes", place(w, in, lane));
        b.shared_state[at + i] = state;
    }
    for (uint32_t g = at >> bits; g <= (at + bytes - 1) >> bits; g++) {
        if ((b.writer[g] & ~(uint64_t)0xffff) == epoch && (b.writer[g] & 0xffff) != me)
            find("a race in shared memory", "a write, after another: " + place(w, in, lane));
        if ((b.reader[g] & ~(uint64_t)0xffff) == epoch && (b.reader[g] & 0xffff) != me)
            find("a race in shared memory", "a write, after a read: " + place(w, in, lane));
        b.writer[g] = epoch | me;
    }
}

/* A wavefront brings one word of each bank to the lanes of a group: to all 32 for accesses of 4 bytes or less, to 16
 * for 8 bytes, to 8 for 16 bytes or a matrix. */
void count_wavefronts(Warp &w, const Insn &in) {
    const bool matrix = in.action == load_matrix, copies = in.action == start_copy;
    const uint32_t bytes = matrix || copies ? 16 : (uint32_t)in.bytes * in.count;
    if (!matrix && !copies && !(in.accesses && in.space == Space::SHARED))
        return;
    const uint32_t group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8, lanes = matrix ? 8u * in.count : 32;
    for (uint32_t first = 0; first < lanes; first += group) {
        uint32_t words[LANES], n = 0, in_bank[32] = {0};
        for (uint32_t i = first; i < first + group; i++)
            for (uint32_t b = 0; (w.exec >> i & 1) && b < bytes; b += 4) {
                const uint32_t word =
                    (uint32_t)(address_in(w, in.o[0], (int)i) + (copies ? 0 : (uint64_t)in.offset) + b) / 4;
                if (std::find(words, words + n, word) == words + n) {
                    words[n++] = word;
                    in_bank[word % 32]++;
                }
            }
        in.wavefronts += *std::max_element(in_bank, in_bank + 32);
        in.least += (n + 31) / 32;
    }
}

/* --- any space */

/* The space of a generic address, which becomes one of that space. */
static inline Space space_of(const Insn &in, uint64_t &address) {
    if (in.space != Space::GENERIC)
        return in.space;
    if (address - SHARED_WINDOW < WINDOW) {
        address -= SHARED_WINDOW;
        return Space::SHARED;
    }
    if (address - FRAME_WINDOW < WINDOW) {
        address -= FRAME_WINDOW;
        return Space::FRAME;
    }
    return Space::GLOBAL;
}

unsigned char *reach(Warp &w, const Insn &in, int lane, uint64_t address, uint32_t bytes, Access how) {
    const Space space = space_of(in, address);
    if (space == Space::GLOBAL)
        return reach_global(w, in, lane, address, bytes, how);
    if (space == Space::SHARED) {
        const uint32_t at = shared_offset(w, in, lane, address, bytes);
        if (how == Access::READ)
            read_shared(w, in, lane, at, bytes);
        else
            write_shared(w, in, lane, at, bytes, SHARED_WRITTEN);
        return &w.block->shared[at];
    }
    const Kernel &k = *w.block->kernel;
    if (address % bytes)
        fault(MISALIGNED_ADDRESS, "address " + hex(address) + " is no multiple of " + std::to_string(bytes), w, in,
              lane);
    if (address >= FRAME_AT) { /* variables and parameters of functions */
        const uint64_t at = address - FRAME_AT;
        if (at + bytes > k.frame_bytes)
            fault(ILLEGAL_ADDRESS, "local address " + hex(at) + " is beyond " + std::to_string(k.frame_bytes), w, in,
                  lane);
        return w.in_frame(at, lane);
    }
    const uint64_t at = address - PARAMETERS_AT;
    if (how != Access::READ || at >= k.parameter_bytes || at + bytes > k.parameter_bytes)
        fault(ILLEGAL_ADDRESS, "parameter " + hex(at) + " is beyond " + std::to_string(k.parameter_bytes), w, in, lane);
    return (unsigned char *)w.block->launch->parameters + at;
}

/* The byte that lies `by` behind one that was reached. */
static inline unsigned char *behind(const Warp &w, unsigned char *p, uint32_t by) {
    const uint64_t from = (uint64_t)(p - w.frame);
    if (from >= (uint64_t)LANES * w.frame_bytes)
        return p + by;
    const uint64_t at = from % 8 + by;
    return p - from % 8 + at / 8 * 8 * LANES + at % 8;
}

static inline void set_lane(unsigned char *to, uint32_t width, int lane, uint64_t value) {
    switch (width) {
    case 2:
        ((uint16_t *)to)[lane] = (uint16_t)value;
        break;
    case 4:
        ((uint32_t *)to)[lane] = (uint32_t)value;
        break;
    default:
        ((uint64_t *)to)[lane] = value;
    }
}

static inline uint64_t element(const unsigned char *p, const Insn &in) {
    uint64_t value = 0;
    switch (in.bytes) {
    case 1:
        return in.sign ? (uint64_t)(int8_t)*p : *p;
    case 2:
        memcpy(&value, p, 2);
        return in.sign ? (uint64_t)(int16_t)value : value;
    case 4:
        memcpy(&value, p, 4);
        return in.sign ? (uint64_t)(int32_t)value : value;
    default:
        memcpy(&value, p, 8);
        return value;
    }
}

template <uint32_t bytes> static inline bool is_on_its_way(const unsigned char *state) {
    bool any = false;
    for (uint32_t i = 0; i < bytes; i++)
        any |= state[i] == SHARED_ON_ITS_WAY;
    return any;
}

/* As read_shared and write_shared, where there is nothing to find. false: they have to look. */
template <Access how, uint32_t bytes> static inline bool quick_shared(Block &b, uint64_t me, uint32_t at) {
    const uint32_t bits = b.kernel->grain_bits, count = bytes >> bits;
    const uint64_t epoch = b.epoch << 16, mine = epoch | me;
    unsigned char *const state = &b.shared_state[at];
    uint64_t *const writer = &b.writer[at >> bits], *const reader = &b.reader[at >> bits];
    if (how == Access::READ ? !all_written(state, bytes) : is_on_its_way<bytes>(state))
        return false;
    bool others = false;
    for (uint32_t g = 0; g < count; g++) {
        others |= (writer[g] ^ epoch) < 65536 && writer[g] != mine;
        others |= how == Access::WRITE && (reader[g] ^ epoch) < 65536 && reader[g] != mine;
    }
    if (others)
        return false;
    for (uint32_t g = 0; g < count; g++)
        if (how == Access::WRITE)
            writer[g] = mine;
        else
            reader[g] = (reader[g] ^ epoch) < 65536 && reader[g] != mine ? epoch | 0xffff : mine;
    if (how == Access::WRITE)
        memset(state, SHARED_WRITTEN, bytes);
    return true;
}

/* Where an access is as it should be, in the spaces that kernels use most: its bytes. NULL: to be looked at by reach.
 */
template <Access how, uint32_t bytes>
static inline unsigned char *quick(Warp &w, const Insn &in, const Device &d, int lane, uint64_t address) {
    const Space space = space_of(in, address);
    if (address & (bytes - 1))
        return nullptr;
    if (space == Space::GLOBAL) {
        const uint64_t at = address - d.at();
        if (at >= d.bytes - 16 || !all_written(d.state + at, bytes))
            return nullptr;
        if (d.writer && !without_race<how, bytes>(w, in, d, lane, at))
            return nullptr;
        if (d.sectors)
            pass_cache(w, d, at, how != Access::READ);
        return d.memory + at;
    }
    if (space == Space::SHARED) {
        const uint64_t at = address - SHARED_AT;
        Block &b = *w.block;
        return at < b.shared_bytes && at + bytes <= b.shared_bytes &&
                       quick_shared<how, bytes>(b, w.thread(lane), (uint32_t)at)
                   ? &b.shared[at]
                   : nullptr;
    }
    const uint64_t at = address - FRAME_AT, room = w.frame_bytes;
    const uint64_t parameter = address - PARAMETERS_AT, parameters = w.block->kernel->parameter_bytes;
    if (how == Access::READ && space == Space::PARAMETER && parameter < parameters && parameter + bytes <= parameters)
        return (unsigned char *)w.block->launch->parameters + parameter;
    return at < room && at + bytes <= room ? w.in_frame(at, lane) : nullptr;
}

/* The place in the frames where so many bytes have one address, or a number that is beyond them. */
template <uint32_t bytes> static inline uint64_t place_in_frames(const Warp &w, const Insn &in, uint64_t address) {
    const uint64_t at = address - (in.space == Space::GENERIC ? FRAME_WINDOW + FRAME_AT : FRAME_AT);
    if (in.space == Space::GLOBAL || in.space == Space::SHARED)
        return w.frame_bytes;
    return at < w.frame_bytes && at + bytes <= w.frame_bytes && at % bytes == 0 ? at : w.frame_bytes;
}

void load(Warp &w, const Insn &in) {
    const uint32_t bytes = (uint32_t)in.bytes * in.count;
    uint64_t addresses[LANES]; /* the result may be the register of the address */
    addresses_of(w, in, addresses);
    for (const int i : Lanes{w.exec}) {
        unsigned char *const p = reach(w, in, i, addresses[i], bytes, Access::READ);
        for (uint32_t j = 0; j < in.count; j++)
            set_lane(w.at<unsigned char>(in.more[j]), in.more[j].width, i, element(behind(w, p, j * in.bytes), in));
    }
}

/* `count` elements of type T, in registers of type R. */
template <class T, class R = T, uint32_t count = 1> static void load_elements(Warp &w, const Insn &in) {
    const Device &d = *w.block->launch->device;
    R *to[count];
    for (uint32_t j = 0; j < count; j++)
        to[j] = w.at<R>(in.more[j]);
    uint64_t addresses[LANES];
    addresses_of(w, in, addresses);
    const uint32_t acting = w.exec, first = (uint32_t)__builtin_ctz(acting);
    const bool one = is_one_address(addresses, acting);
    const uint64_t at = one ? place_in_frames<count * sizeof(T)>(w, in, addresses[first]) : w.frame_bytes;
    for (uint32_t j = 0; j < count && at < w.frame_bytes; j++) {
        const uint64_t *const row = w.row_of_frames(at + j * sizeof(T)), shift = (at + j * sizeof(T)) % 8 * 8;
        for (uint32_t i = 0; i < LANES; i++)
            to[j][i] = acting >> i & 1 ? (R)(T)(row[i] >> shift) : to[j][i];
    }
    if (at < w.frame_bytes)
        return;
    /* What all read, races with a write if the first does, or the last. */
    for (const int i : Lanes{one ? 1u << first | 0x80000000u >> __builtin_clz(acting) : acting}) {
        unsigned char *p = quick<Access::READ, count * sizeof(T)>(w, in, d, i, addresses[i]);
        p = p ? p : reach(w, in, i, addresses[i], count * sizeof(T), Access::READ);
        for (uint32_t j = 0; j < count; j++) {
            T value;
            memcpy(&value, count > 1 ? behind(w, p, j * sizeof(T)) : p, sizeof value);
            to[j][i] = (R)value;
        }
    }
    for (uint32_t j = 0; j < count && one; j++) {
        const R value = to[j][first];
        for (uint32_t i = 0; i < LANES; i++)
            to[j][i] = acting >> i & 1 ? value : to[j][i];
    }
}

template <class T, class R = T, uint32_t count = 1> static void store_elements(Warp &w, const Insn &in) {
    const Device &d = *w.block->launch->device;
    const R *from[count];
    for (uint32_t j = 0; j < count; j++)
        from[j] = w.at<R>(in.more[j]);
    uint64_t addresses[LANES];
    addresses_of(w, in, addresses);
    const uint64_t at = is_one_address(addresses, w.exec)
                            ? place_in_frames<count * sizeof(T)>(w, in, addresses[__builtin_ctz(w.exec)])
                            : w.frame_bytes;
    for (uint32_t j = 0; j < count && at < w.frame_bytes; j++) {
        typedef typename std::make_unsigned<T>::type U;
        uint64_t *const row = w.row_of_frames(at + j * sizeof(T));
        const uint64_t shift = (at + j * sizeof(T)) % 8 * 8, mask = (uint64_t)(U) ~(U)0 << shift;
        const uint32_t acting = w.exec;
        for (uint32_t i = 0; i < LANES; i++)
            row[i] = acting >> i & 1 ? (row[i] & ~mask) | (uint64_t)(U)from[j][i] << shift : row[i];
    }
    for (const int i : Lanes{at < w.frame_bytes ? 0 : w.exec}) {
        unsigned char *p = quick<Access::WRITE, count * sizeof(T)>(w, in, d, i, addresses[i]);
        p = p ? p : reach(w, in, i, addresses[i], count * sizeof(T), Access::WRITE);
        for (uint32_t j = 0; j < count; j++)
            memcpy(count > 1 ? behind(w, p, j * sizeof(T)) : p, &from[j][i],
                   sizeof(T)); /* the low bytes of the register */
    }
}

Action *quick_access(const Insn &in) {
    for (const Operand &o : in.more)
        if (o.width != in.more[0].width)
            return in.action;
    /* 10000 for stores, 1000 for each element, 100 for each of its bytes, 10 for each of the register, 1 for a sign to
     * extend */
    static const std::map<int, Action *> actions = {
        {1880, load_elements<uint64_t>},
        {1881, load_elements<uint64_t>},
        {1440, load_elements<uint32_t>},
        {1441, load_elements<uint32_t>},
        {1480, load_elements<uint32_t, uint64_t>},
        {1481, load_elements<int32_t, uint64_t>},
        {1220, load_elements<uint16_t>},
        {1221, load_elements<uint16_t>},
        {1240, load_elements<uint16_t, uint32_t>},
        {1241, load_elements<int16_t, uint32_t>},
        {1120, load_elements<uint8_t, uint16_t>},
        {1121, load_elements<int8_t, uint16_t>},
        {1140, load_elements<uint8_t, uint32_t>},
        {1141, load_elements<int8_t, uint32_t>},
        {2880, load_elements<uint64_t, uint64_t, 2>},
        {2440, load_elements<uint32_t, uint32_t, 2>},
        {4440, load_elements<uint32_t, uint32_t, 4>},
        {2220, load_elements<uint16_t, uint16_t, 2>},
        {4220, load_elements<uint16_t, uint16_t, 4>},
        {2120, load_elements<uint8_t, uint16_t, 2>},
        {4120, load_elements<uint8_t, uint16_t, 4>},
        {11880, store_elements<uint64_t>},
        {11440, store_elements<uint32_t>},
        {11220, store_elements<uint16_t>},
        {11120, store_elements<uint8_t, uint16_t>},
        {11140, store_elements<uint8_t, uint32_t>},
        {11240, store_elements<uint16_t, uint32_t>},
        {12880, store_elements<uint64_t, uint64_t, 2>},
        {12440, store_elements<uint32_t, uint32_t, 2>},
        {14440, store_elements<uint32_t, uint32_t, 4>},
        {12220, store_elements<uint16_t, uint16_t, 2>},
        {14220, store_elements<uint16_t, uint16_t, 4>},
    };
    Action *const *const quicker =
        entry_of(actions, (in.action == store ? 10000 : 0) + in.count * 1000 + in.bytes * 100 + in.more[0].width * 10 +
                              (in.sign && in.action == load));
    return quicker ? *quicker : in.action;
}

void load_parameter(Warp &w, const Insn &in) {
    const unsigned char *const p =
        reach(w, in, 0, w.at<uint64_t>(in.o[0])[0] + (uint64_t)in.offset, (uint32_t)in.bytes * in.count, Access::READ);
    for (uint32_t j = 0; j < in.count; j++) {
        const uint64_t value = element(p + j * in.bytes, in);
        unsigned char *const to = w.at<unsigned char>(in.more[j]);
        const uint32_t width = in.more[j].width;
        if (w.exec == ALL && width == 8)
            for (uint32_t i = 0; i < LANES; i++)
                ((uint64_t *)to)[i] = value;
        else
            for (const int i : Lanes{w.exec})
                set_lane(to, width, i, value);
    }
}

void store(Warp &w, const Insn &in) {
    for (const int i : Lanes{w.exec}) {
        unsigned char *const p = reach(w, in, i, address_in(w, in.o[0], i) + (uint64_t)in.offset,
                                       (uint32_t)in.bytes * in.count, Access::WRITE);
        for (uint32_t j = 0; j < in.count; j++)
            memcpy(behind(w, p, j * in.bytes), w.at<unsigned char>(in.more[j]) + (size_t)i * in.more[j].width,
                   in.bytes);
    }
}

template <class T> static T combine(T a, T b, int how) {
    typedef typename std::make_unsigned<T>::type U;
    return how == 0   ? (T)((U)a + (U)b)
           : how == 1 ? (a < b ? a : b)
           : how == 2 ? (a > b ? a : b)
           : how == 3 ? a & b
           : how == 4 ? a | b
                      : b;
}

template <class T> static void change(void *p, void *old, const void *operand, int how) {
    T a, b;
    memcpy(&a, p, sizeof a);
    memcpy(&b, operand, sizeof b);
    memcpy(old, &a, sizeof a);
    a = combine(a, b, how);
    memcpy(p, &a, sizeof a);
}

/* The lanes of a warp come in any order. */
void atomic(Warp &w, const Insn &in) {
    int order[LANES], n = 0;
    for (const int i : Lanes{w.exec})
        order[n++] = i;
    for (int j = n - 1; j > 0; j--)
        std::swap(order[j], order[draw(w.random) % (uint64_t)(j + 1)]);
    for (int j = 0; j < n; j++) {
        const int i = order[j];
        unsigned char *const p =
            reach_global(w, in, i, address_in(w, in.o[1], i) + (uint64_t)in.offset, in.bytes, Access::ATOMIC);
        uint64_t old = 0;
        const void *const operand = w.at<unsigned char>(in.o[2]) + (size_t)i * in.bytes;
        if (in.bytes == 4)
            in.sign ? change<int32_t>(p, &old, operand, in.how) : change<uint32_t>(p, &old, operand, in.how);
        else
            in.sign ? change<int64_t>(p, &old, operand, in.how) : change<uint64_t>(p, &old, operand, in.how);
        set_lane(w.at<unsigned char>(in.o[0]), in.bytes, i, old);
    }
}

/* Between addresses of a space and generic ones. */
static void move_address(Warp &w, const Insn &in, uint64_t by) {
    uint64_t *const d = w.at<uint64_t>(in.o[0]);
    const uint64_t *const a = w.at<uint64_t>(in.o[1]);
    for (const int i : Lanes{w.exec})
        d[i] = a[i] + by;
}
void take_address(Warp &w, const Insn &in) {
    move_address(w, in, 0 - (in.space == Space::SHARED ? SHARED_WINDOW : FRAME_WINDOW));
}
void give_address(Warp &w, const Insn &in) {
    move_address(w, in, in.space == Space::SHARED ? SHARED_WINDOW : FRAME_WINDOW);
}

} // namespace ptx
