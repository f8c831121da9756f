/* ptx_warp.cpp - what the lanes of a warp do together: shuffles, maxima and tensor-core products; and asynchronous
 * copies. */
#include "ptx.h"

namespace ptx {

void shuffle(Warp &w, const Insn &in) {
    const uint32_t *const a = w.at<uint32_t>(in.o[1]), *const b = w.at<uint32_t>(in.o[2]),
                          *const c = w.at<uint32_t>(in.o[3]);
    uint32_t values[LANES] = {0}, in_range = 0;
    bool plain = w.exec == ALL && in.how != 0; /* the whole warp, by the same distance */
    for (uint32_t i = 0; i < LANES; i++)
        plain &= c[i] == 31 && b[i] == b[0];
    if (plain) {
        const uint32_t by = b[0] & 31;
        for (uint32_t i = 0; i < LANES; i++) {
            const uint32_t from = in.how == 1 ? i + by : in.how == 2 ? i ^ by : by;
            in_range |= (uint32_t)(from < LANES) << i;
            values[i] = a[from < LANES ? from : i];
        }
        memcpy(w.at<uint32_t>(in.o[0]), values, sizeof values);
        w.set_predicate(in.o[5], in_range);
        return;
    }
    for (const int i : Lanes{w.exec}) {
        const int segment = (int)(c[i] >> 8 & 31), clamp = (int)(c[i] & 31), by = (int)(b[i] & 31);
        const int most = (i & segment) | (clamp & ~segment), least = i & segment;
        int from;
        bool inside;
        if (in.how == 0)
            from = i - by, inside = from >= most;
        else
            from = in.how == 1 ? i + by : in.how == 2 ? i ^ by : (least | (by & ~segment)), inside = from <= most;
        from = inside ? from : i;
        in_range |= (uint32_t)inside << i;
        values[i] = a[from];
        if (!(w.exec >> from & 1)) {
            find("a shuffle from a lane that takes no part", place(w, in, i));
            values[i] = (uint32_t)draw(w.random);
        }
    }
    for (const int i : Lanes{w.exec})
        w.at<uint32_t>(in.o[0])[i] = values[i];
    w.set_predicate(in.o[5], in_range);
}

/* redux.sync.max; how: 1: redux.sync.add */
void reduce(Warp &w, const Insn &in) {
    uint32_t *const to = w.at<uint32_t>(in.o[0]), *const of = w.at<uint32_t>(in.o[1]);
    uint32_t all = 0;
    for (const int i : Lanes{w.exec})
        all = in.how ? all + of[i] : std::max(all, of[i]);
    for (const int i : Lanes{w.exec})
        to[i] = all;
}

/* mma.m16n8k32 of bytes: d, a, b, c. PTX ISA, "Matrix Fragments for mma.m16n8k32": byte i of register r of lane 4 g + t
 * is a[g + 8 (r mod 2)][4 t + i + 16 (r div 2)], and b[4 t + i + 16 r][g]; register j of c and d is [g + 8 (j div 2)][2
 * t + j mod 2]. how: 1: a is signed, 2: b is. */
void multiply_tiles(Warp &w, const Insn &in) {
    uint32_t words[8][16 + 8]; /* four bytes of each row of a, then of each column of b */
    int32_t elements[32][16 + 8], sums[8][16] = {{0}};
    if (in.more.size() != 14)
        give_up("mma with another number of registers: " + std::string(in.text));
    for (int r = 0; r < 6; r++) {
        const uint32_t *const from = w.at<uint32_t>(in.more[(size_t)(4 + r)]);
        for (int lane = 0; lane < (int)LANES; lane++)
            words[lane % 4 + 4 * (r < 4 ? r / 2 : r - 4)][lane / 4 + (r < 4 ? 8 * (r % 2) : 16)] = from[lane];
    }
    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16 + 8; i++) {
            const uint32_t top = words[k / 4][i] << (24 - 8 * (k % 4));
            elements[k][i] = in.how & (i < 16 ? 1 : 2) ? (int32_t)top >> 24 : (int32_t)(top >> 24);
        }
    for (int column = 0; column < 8; column++)
        for (int k = 0; k < 32; k++)
            for (int row = 0; row < 16; row++)
                sums[column][row] += elements[k][row] * elements[k][16 + column];
    for (int j = 0; j < 4; j++) {
        uint32_t *const d = w.at<uint32_t>(in.more[(size_t)j]);
        const uint32_t *const c = w.at<uint32_t>(in.more[(size_t)(10 + j)]);
        for (int lane = 0; lane < (int)LANES; lane++)
            d[lane] = c[lane] + (uint32_t)sums[2 * (lane % 4) + j % 2][lane / 4 + 8 * (j / 2)];
    }
}

/* PTX ISA, "Warp-level matrix load instruction": lane 8 m + j gives the address of row j of matrix m. */
void load_matrix(Warp &w, const Insn &in) {
    uint16_t rows[LANES][8];
    for (int lane = 0; lane < 8 * in.count; lane++) {
        const uint32_t at = shared_offset(w, in, lane, address_in(w, in.o[0], lane) + (uint64_t)in.offset, 16);
        read_shared(w, in, lane, at, 16);
        memcpy(rows[lane], &w.block->shared[at], 16);
    }
    if (in.more.size() != in.count)
        give_up("ldmatrix with another number of registers: " + std::string(in.text));
    for (int m = 0; m < in.count; m++) {
        uint32_t *const d = w.at<uint32_t>(in.more[(size_t)m]);
        for (int lane = 0; lane < (int)LANES; lane++) {
            const int g = lane / 4, t = lane % 4;
            const uint32_t low = in.how ? rows[8 * m + 2 * t][g] : rows[8 * m + g][2 * t];
            const uint32_t high = in.how ? rows[8 * m + 2 * t + 1][g] : rows[8 * m + g][2 * t + 1];
            d[lane] = low | high << 16;
        }
    }
}

/* --- asynchronous copies: they end as late as they may, when their thread waits for their group; what is there before
 * is random. */

void start_copy(Warp &w, const Insn &in) {
    if (in.offset != in.bytes)
        give_up("cp.async with an offset or of another size: " + std::string(in.text));
    for (const int i : Lanes{w.exec}) {
        const uint64_t from = address_in(w, in.o[1], i);
        const uint32_t valid = w.at<uint32_t>(in.o[2])[i];
        const uint32_t to = shared_offset(w, in, i, address_in(w, in.o[0], i), in.bytes);
        if (valid > in.bytes)
            fault(719, "cp.async of more bytes than it copies", w, in, i);
        if (from % in.bytes)
            fault(716, "the source of cp.async is not aligned", w, in, i);
        if (valid == in.bytes)
            reach_global(w, in, i, from, in.bytes, Access::READ);
        else
            for (uint32_t j = 0; j < valid; j++)
                reach_global(w, in, i, from + j, 1, Access::READ);
        write_shared(w, in, i, to, in.bytes, SHARED_ON_ITS_WAY);
        for (uint32_t j = 0; j < in.bytes; j += 8) {
            const uint64_t rubbish = draw(w.random);
            memcpy(&w.block->shared[to + j], &rubbish, 8);
        }
        w.copies.push_back(Copy{from, to, w.committed[i], (uint8_t)i, in.bytes, (uint8_t)valid});
    }
}

void commit_copies(Warp &w, const Insn &) {
    for (const int i : Lanes{w.exec})
        w.committed[i]++;
}

void wait_for_copies(Warp &w, const Insn &in) {
    Block &b = *w.block;
    const Device &d = *b.launch->device;
    size_t left = 0;
    for (size_t j = 0; j < w.copies.size(); j++) {
        const Copy c = w.copies[j];
        if (!(w.exec >> c.lane & 1) || (int64_t)c.group >= (int64_t)w.committed[c.lane] - in.offset) {
            w.copies[left++] = c;
            continue;
        }
        memset(&b.shared[c.to], 0, c.bytes);
        memcpy(&b.shared[c.to], d.memory + (c.valid ? c.from - d.at() : 0), c.valid);
        memset(&b.shared_state[c.to], SHARED_WRITTEN, c.bytes);
        for (uint32_t g = c.to / b.kernel->grain; g < (c.to + c.bytes) / b.kernel->grain; g++)
            b.writer[g] = b.epoch << 16 | w.thread(c.lane);
    }
    w.copies.resize(left);
}

} // namespace ptx
