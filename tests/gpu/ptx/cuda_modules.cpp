/* cuda_modules.cpp - what nvcc's host code registers: fat binaries, of which the PTX is taken, and kernels. */
#include "cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

namespace cuda {

/* A block of LZ4: tokens with the numbers of bytes to take and to repeat. */
static std::string unpack_lz4(const unsigned char *p, size_t bytes, size_t room) {
    std::string out;
    const unsigned char *const end = p + bytes;
    auto length = [&](size_t n) {
        for (unsigned char more = 255; n >= 15 && more == 255 && p < end; n += more)
            more = *p++;
        return n;
    };
    while (p < end) {
        const unsigned token = *p++;
        const size_t plain = length(token >> 4);
        if (plain > (size_t)(end - p))
            break;
        out.append((const char *)p, plain);
        p += plain;
        if (end - p < 2)
            break;
        const size_t back = p[0] | (size_t)p[1] << 8;
        p += 2;
        if (!back || back > out.size() || out.size() > room)
            ptx::give_up("PTX that is not packed by LZ4");
        const size_t from = out.size() - back, more = length(token & 15) + 4;
        out.resize(out.size() + more);
        for (size_t i = 0; i < more; i++) /* which may repeat what it has just written */
            out[from + back + i] = out[from + i];
    }
    return out;
}

/* By the system's libzstd: package managers need it, so that it is there. */
static std::string unpack_zstd(const unsigned char *p, size_t bytes, size_t room) {
    void *const library = dlopen("libzstd.so.1", RTLD_NOW);
    void *const symbol = library ? dlsym(library, "ZSTD_decompress") : nullptr;
    if (!symbol)
        ptx::give_up("PTX is packed by Zstandard, and there is no libzstd.so.1");
    size_t (*unpack)(void *, size_t, const void *, size_t);
    memcpy(&unpack, &symbol, sizeof unpack);
    std::string out(room, 0);
    const size_t got = unpack(&out[0], room, p, bytes);
    if (got > room)
        ptx::give_up("PTX that is not packed by Zstandard");
    out.resize(got);
    return out;
}

/* A change of the text for tests of tests, KERNEL|N|OLD|NEW: in each kernel with KERNEL in its name the N-th OLD
 * becomes NEW, or all of them for 0. */
static void edit(std::string &text) {
    const char *const wish = getenv("FLEXLAB_PTX_EDIT");
    if (!wish)
        return;
    std::vector<std::string> part(1);
    for (const char *c = wish; *c; c++)
        if (*c == '|' && part.size() < 4)
            part.emplace_back();
        else
            part.back() += *c;
    if (part.size() != 4)
        ptx::give_up("FLEXLAB_PTX_EDIT is not KERNEL|N|OLD|NEW");
    int edits = 0;
    for (size_t at = text.find(".entry "); at != std::string::npos; at = text.find(".entry ", at + 1)) {
        if (text.substr(at, text.find('(', at) - at).find(part[0]) == std::string::npos)
            continue;
        const int which = atoi(part[1].c_str());
        bool changed = false;
        size_t place = at;
        for (int n = 1; (place = text.find(part[2], place + 1)) < text.find("\n}\n", at); n++)
            if (!which || n == which) {
                text.replace(place, part[2].size(), part[3]);
                place += part[3].size();
                changed = true;
            }
        edits += changed;
    }
    if (edits)
        fprintf(stderr, "ptx: edited %d kernels\n", edits);
}

/* The PTX for an architecture, as it lies in the binary. */
struct Packed {
    const unsigned char *body = nullptr;
    uint64_t bytes = 0, flags = 0, room = 0;
    uint32_t packed = 0;
};
struct Binary {
    std::map<int, Packed> texts; /* by architecture */
    std::unique_ptr<ptx::Module> module;
};
/* Registration comes before the objects of this file are made. */
static std::map<const void *, std::unique_ptr<Function>> &functions() {
    static auto &all = *new std::map<const void *, std::unique_ptr<Function>>;
    return all;
}

template <class T> static T field(const unsigned char *at) {
    T value;
    memcpy(&value, at, sizeof value);
    return value;
}

static Binary *read_binary(const unsigned char *data) {
    const uint64_t head = field<uint16_t>(data + 6), size = field<uint64_t>(data + 8);
    if (field<uint32_t>(data) != 0xba55ed50u)
        ptx::give_up("a fat binary of an unknown kind");
    Binary *const b = new Binary;
    for (uint64_t at = head; at < head + size;) {
        const unsigned char *const entry = data + at;
        const uint64_t entry_head = field<uint32_t>(entry + 4), bytes = field<uint64_t>(entry + 8),
                       flags = field<uint64_t>(entry + 40), room = field<uint64_t>(entry + 56);
        const uint32_t packed = field<uint32_t>(entry + 16);
        const unsigned char *const body = entry + entry_head;
        if (field<uint16_t>(entry) == 1) /* PTX */
            b->texts[field<int>(entry + 28)] = {body, bytes, flags, room, packed};
        at += entry_head + bytes;
    }
    return b;
}

/* Of a binary of which a kernel is called: most programs call those of few, and every process reads all of them. */
static std::string unpack(const Packed &p) {
    return p.flags & 0x8000   ? unpack_zstd(p.body, p.packed, p.room)
           : p.flags & 0x2000 ? unpack_lz4(p.body, p.packed, p.room)
                              : std::string((const char *)p.body, p.bytes);
}

Function *function_at(const void *host) {
    const auto *const found = ptx::entry_of(functions(), host);
    return found ? found->get() : nullptr;
}

ptx::Kernel &kernel_of(Function &f) {
    if (!f.kernel) {
        Binary &b = *(Binary *)f.binary;
        if (!b.module) {
            const Packed *const found = ptx::entry_of(b.texts, ptx::options().arch);
            if (!found)
                ptx::give_up("no PTX for architecture " + std::to_string(ptx::options().arch) + ": " + f.name);
            std::string text = unpack(*found);
            text.resize(std::min(text.size(), text.find('\0')));
            edit(text);
            b.module.reset(new ptx::Module(std::move(text)));
        }
        f.kernel = &b.module->kernel(f.name);
    }
    return *f.kernel;
}

} // namespace cuda

namespace ptx {
void report_kernels(FILE *to) {
    for (auto &f : cuda::functions()) {
        const Kernel *const k = f.second->kernel;
        fprintf(to, "kernel %s %llu %llu\n", f.second->name.c_str(), (unsigned long long)(k ? k->launches : 0),
                (unsigned long long)(k ? k->instructions : 0));
        if (k && k->traffic)
            fprintf(to, "traffic %s %llu\n", f.second->name.c_str(), (unsigned long long)k->traffic);
    }
}

/* Shared memory has 32 banks of 4 bytes. Where the threads of an instruction need several words of one bank, it takes
 * as many wavefronts. */
void find_conflicts() {
    for (auto &f : cuda::functions()) {
        if (!f.second->kernel)
            continue;
        for (const Insn &in : f.second->kernel->program)
            if (in.inner && in.wavefronts > in.least)
                find("bank conflicts in an inner loop", std::to_string(in.wavefronts) + " wavefronts instead of " +
                                                            std::to_string(in.least) + ", kernel " + f.second->name +
                                                            ": " + std::string(in.text));
    }
}

void forget_counts() {
    forget_instructions();
    for (auto &f : cuda::functions())
        if (f.second->kernel)
            f.second->kernel->launches = f.second->kernel->instructions = f.second->kernel->traffic = 0;
}
} // namespace ptx

/* --- what the compiler's host code calls */

extern "C" {
void **__cudaRegisterFatBinary(void *wrapper) {
    const unsigned char *data;
    memcpy(&data, (const char *)wrapper + 8, sizeof data);
    static const int once = atexit(ptx::end_of_process);
    (void)once;
    return (void **)cuda::read_binary(data);
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) {
    return 1;
}
void __cudaRegisterFunction(void **binary, const char *host, char *, const char *name, int, void *, void *, void *,
                            void *, int *) {
    cuda::functions()[host].reset(new cuda::Function{binary, name, nullptr, 48 << 10});
}
}
