/* ptx.h - a machine that executes PTX, the language between CUDA's compiler and a GPU, on the processor.
 *
 * A kernel is decoded once, from the text that the compiler has emitted, into a program of instructions, each a
 * function that acts on the 32 lanes of a warp at a time. The lanes of a register lie one after the other, so that
 * compilers make vector instructions of these functions; a predicate is a word with a bit for each lane.
 *
 * The machine is a witness, not a model of speed: what the PTX ISA leaves open is drawn from a seed, and what it
 * forbids is a finding. A finding is printed at once, and the process ends with status PTX_STATUS, whatever it meant to
 * return.
 *
 * Environment:
 *   FLEXLAB_PTX_SEED     order of blocks, warps, and of lanes in atomic operations; bits of what is undefined (1)
 *   FLEXLAB_PTX_CHECKS   words, separated by commas: "diverge": lanes go on in any order, and meet only where an
 *                        instruction makes them; "nan": a NaN has any payload and sign; "registers": what was computed
 *                        from a register that was never written must decide nothing: no branch, address or store;
 *                        "races": between threads of a launch in global memory; "pinned": all
 *                        memory of the host counts as pinned; "banks": an instruction of an inner loop must not take
 *                        more wavefronts of shared memory than its bytes need; "traffic": bytes between memory and a
 *                        cache of 50 MiB, of which it keeps what was used last, are counted
 *   FLEXLAB_PTX_ARCH     whose PTX, of what the fat binary has: 80
 *   FLEXLAB_PTX_DEVICES, FLEXLAB_PTX_BYTES, FLEXLAB_PTX_SHARED_KIB   number of devices, memory of each, shared memory
 *   FLEXLAB_PTX_GPU      whose tensor cores sum products of floats, and whose compute capability the device has: a100
 *                        or h100 (a100)
 *   FLEXLAB_PTX_DRIVER   the CUDA that the driver is for: 12080; the runtime's
 *   FLEXLAB_PTX_FAIL     CALL@N[@ERROR]: the N-th CALL ("launch", a function of the runtime, or "*": any) fails
 *                        with ERROR; each for N = 0
 *   FLEXLAB_PTX_EDIT     KERNEL|N|OLD|NEW: in kernels with KERNEL in their names the N-th OLD (0: each) becomes NEW;
 *                        the first finding ends the process at once, without a report
 *   FLEXLAB_PTX_REPORT   a file: launches, instructions, kernels and opcodes that ran, written at exit */
#ifndef FLEXLAB_TESTS_PTX_H
#define FLEXLAB_TESTS_PTX_H

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace ptx {

typedef unsigned __int128 u128;
typedef __int128 s128;

enum : uint32_t { LANES = 32, ALL = 0xffffffffu };
enum { PTX_STATUS = 98 };

/* --- options and findings (ptx_findings.cpp) ---------------------------------------------------------------------- */

struct Options {
    uint64_t seed = 1, bytes = (uint64_t)1 << 30;
    bool diverge = false, nan = false, registers = false, races = false, pinned = false, banks = false, traffic = false;
    int arch = 80, devices = 1, driver = 0;
    uint32_t shared_bytes = 163 << 10; /* of a block, at most */
};
const Options &options();

/* A finding, which does not end the launch. At most a few texts of each kind are printed. */
void find(const char *kind, const std::string &text);
long findings();
/* A fault ends the launch and, as on a GPU, the context: the error stays. */
struct Fault {
    int error; /* a cudaError_t */
    std::string text;
};
/* The PTX is not understood: the process ends. */
[[noreturn]] void give_up(const std::string &text);
/* Called at exit: prints what was found, writes the report. */
void end_of_process();
void report_kernels(FILE *to); /* cuda_modules.cpp */
void find_conflicts();
void forget_counts(); /* of instructions and launches */

/* What a map has for a key; NULL: nothing. */
template <class Map, class Key> auto *entry_of(Map &map, const Key &key) {
    const auto it = map.find(key);
    return it == map.end() ? nullptr : &it->second;
}

inline uint64_t draw(uint64_t &state) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* --- programs (ptx_text.cpp, ptx_decode.cpp, ptx_forms.cpp) ------------------------------------------------------- */

/* The lanes of a mask, in order: for (const int i : Lanes{mask}). */
struct Lanes {
    uint32_t left;
    Lanes begin() const { return *this; }
    Lanes end() const { return {0}; }
    int operator*() const { return __builtin_ctz(left); }
    void operator++() { left &= left - 1; }
    bool operator!=(const Lanes &other) const { return left != other.left; }
};

/* A bit for each lane whose flag is -1; the others are 0. */
inline uint32_t lanes_of(const int8_t flags[LANES]) {
#ifdef __AVX2__
    return (uint32_t)_mm256_movemask_epi8(_mm256_loadu_si256((const __m256i *)flags));
#else
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < LANES; i++)
        lanes |= (uint32_t)(flags[i] & 1) << i;
    return lanes;
#endif
}

struct Warp;
struct Insn;
typedef void Action(Warp &, const Insn &);

/* A register or a constant. width: bytes of a lane; 0: a predicate, of which `at` is the number. */
struct Operand {
    int32_t at = 0; /* bytes from the beginning of the registers, or of the constants */
    uint16_t number = 0;
    uint8_t constant = 0, width = 0;
};

enum class Kind : uint8_t { PLAIN, BRANCH, CALL, RETURN, EXIT, BARRIER, TOGETHER, TRAP };
/* Which of the registers that an instruction reads must have been written, for its result to count as written: all; the
 * predicate and the register that it chooses; both predicates, or one that decides alone. NEEDED: none may be
 * unwritten. */
enum class Flow : uint8_t { OF_ALL, CHOICE, AND, OR, NEEDED };
enum class Space : uint8_t { GENERIC, GLOBAL, SHARED, FRAME, PARAMETER };

/* How an opcode is executed, and what operands it has, a letter each: 2, 4, 8: a register or constant of so many bytes;
 * x: of any; p: a predicate; q: a register and a predicate, D|P; a: an address; i: a number; v: as many registers as
 * the opcode says, in braces unless it is one; w: registers in braces; t: those of 32 bits. The first is the result,
 * unless the signature begins with '!'. */
struct Form {
    const char *signature = nullptr;
    Action *action = nullptr;
    Kind kind = Kind::PLAIN;
    uint8_t bytes = 0, count = 1, how = 0; /* of a memory access: bytes of an element, elements; a variant */
    bool sign = false;
    Space space = Space::GENERIC;
    bool accesses = false; /* loads and stores */
    Flow flow = Flow::OF_ALL;
};

/* At most so many numbers. */
template <uint32_t most> struct Few {
    uint16_t count = 0, of[most];
    void push_back(uint16_t number) {
        if (count == most)
            give_up("an instruction of too many registers");
        of[count++] = number;
    }
    const uint16_t *begin() const { return of; }
    const uint16_t *end() const { return of + count; }
};

/* What most instructions need comes first, in two lines of a cache. */
struct alignas(64) Insn : Form {
    bool guard_is_not = false, inner = false; /* inner: in a loop without another one in it */
    bool simple = false;                      /* without a guard, plain, and of Flow::OF_ALL */
    int32_t guard = -1;
    uint32_t target = 0, opcode = 0;
    int64_t offset = 0; /* of an address; or an immediate number */
    Few<4> writes;
    Few<11> reads;             /* numbers of registers; that of the guard first */
    Operand o[6];              /* of a shuffle the last is its predicate */
    std::vector<Operand> more; /* operands in braces */
    uint32_t function = 0;
    std::string_view text;
    mutable uint64_t wavefronts = 0, least = 0; /* of shared memory, where they are counted: taken, needed */
};

struct Parameter {
    uint32_t at, bytes;
};

struct Kernel {
    std::string name;
    std::vector<Insn> program;
    std::vector<unsigned char> constants;
    std::vector<Parameter> parameters;
    uint32_t register_bytes = 0, predicates = 0, numbers = 0; /* numbers: of registers and predicates together */
    uint32_t parameter_bytes = 0, frame_bytes = 0, static_shared = 0, functions = 0;
    uint32_t most_threads[3] = {0, 0, 0}; /* 0: no limit */
    uint32_t grain = 4, grain_bits = 2;   /* bytes of shared memory whose races are told apart: 2^grain_bits */
    bool barriers = false;
    uint64_t launches = 0, instructions = 0, traffic = 0; /* traffic: in bytes */
};

struct Variable {
    Space space;
    uint64_t at;
};

/* The PTX of a fat binary. Its kernels are decoded when they are asked for. */
class Module {
  public:
    explicit Module(std::string text);
    ~Module();
    Kernel &kernel(const std::string &name);

    struct Function {
        size_t head, body, end; /* of its parameters, behind the opening brace, of the closing brace */
        bool entry;
        uint32_t most_threads[3];
    };
    const std::string &text() const { return text_; }
    const Function *function(std::string_view name) const { return entry_of(functions_, name); }
    const Variable *variable(std::string_view name) const { return entry_of(variables_, name); }

  private:
    void scan();
    const std::string text_;
    std::unordered_map<std::string_view, Function> functions_;
    std::unordered_map<std::string_view, Variable> variables_;
    std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
};

/* false: no such opcode. */
bool form_of(std::string_view opcode, Form *form);
/* The action again, or a quicker one for the operands that the instruction has. */
Action *quick_form(const Insn &in);
Action *quick_access(const Insn &in);

uint32_t opcode_number(std::string_view opcode);
const std::vector<std::string> &opcode_names();

/* --- memory (ptx_memory.cpp) -------------------------------------------------------------------------------------- */

/* Where the spaces lie. A device's memory has addresses at which the host has none, nor AddressSanitizer its shadow. */
constexpr uint64_t DEVICES_AT = 0x200000000000u, DEVICE_STEP = 0x1000000000u;
constexpr uint64_t SHARED_WINDOW = 0x1f0000000000u, FRAME_WINDOW = 0x1e0000000000u, WINDOW = (uint64_t)1 << 32;
constexpr uint64_t SHARED_AT = 1024, PARAMETERS_AT = 0x160, FRAME_AT = 0x100000;

enum : unsigned char { FREE, ALLOCATED, WRITTEN }; /* of a byte */

struct Sector {          /* of a cache, 32 bytes */
    uint64_t launch, at; /* the last that used it; what all had brought before, in bytes */
    bool changed;        /* and not written to memory yet */
};

struct Device {
    int number;
    uint64_t bytes, used_by_variables;
    unsigned char *memory, *state;
    uint64_t *writer, *reader; /* NULL unless asked for: of each byte the last writer, and a reader */
    Sector *sectors;           /* NULL unless asked for */
    uint64_t at() const { return DEVICES_AT + (uint64_t)number * DEVICE_STEP; }
};
Device &device(int number);
/* Variables of modules lie at the end of the memory of every device. */
uint64_t new_variable(const std::vector<unsigned char> &bytes);

/* --- execution (ptx_run.cpp) -------------------------------------------------------------------------------------- */

struct Launch {
    Kernel *kernel;
    Device *device;
    const unsigned char *parameters;
    uint32_t grid[3], block[3], dynamic_shared;
    uint64_t number;
};
/* Throws Fault. */
void run(const Launch &launch);
uint64_t instructions_run();
void forget_instructions();
const std::vector<uint64_t> &opcode_counts();

struct Copy { /* of cp.async, under way */
    uint64_t from;
    uint32_t to, group;
    uint8_t lane, bytes, valid;
};

struct Block {
    const Launch *launch;
    const Kernel *kernel;
    uint32_t id[3], threads, shared_bytes;
    uint64_t number, epoch; /* epoch: barriers that were passed, and one */
    std::vector<unsigned char> shared, shared_state;
    std::vector<uint64_t> writer, reader; /* of each grain: epoch << 16 | thread */
};

struct Warp {
    unsigned char *bank[2]; /* registers, constants */
    uint32_t *predicates;
    uint32_t exec, live, carry; /* lanes that act, that have not ended; carry flags */
    uint32_t running, waiting;  /* waiting: for others, at an instruction for all; the other live ones: at a barrier */
    Block *block;
    uint32_t number, frame_bytes; /* of a lane */
    unsigned char *frame;
    uint32_t pc[LANES];
    uint32_t committed[LANES];
    std::vector<uint32_t> returns; /* of each function and lane */
    std::vector<uint32_t> defined; /* lanes of each register that were written */
    std::vector<Copy> copies;
    uint64_t random;

    template <class T> T *at(const Operand &o) { return (T *)(bank[o.constant] + o.at); }
    uint32_t predicate(const Operand &o) const { return o.constant ? (o.at ? (uint32_t)ALL : 0) : predicates[o.at]; }
    void set_predicate(const Operand &o, uint32_t value) {
        predicates[o.at] = (predicates[o.at] & ~exec) | (value & exec);
    }
    /* Of frames, 8 bytes of each lane lie side by side. Behind all frames is their state, in the same order. */
    unsigned char *in_frame(uint64_t at, int lane) const {
        return frame + ((at / 8) * LANES + (uint64_t)lane) * 8 + at % 8;
    }
    uint64_t *row_of_frames(uint64_t at) const { return (uint64_t *)in_frame(at / 8 * 8, 0); }
    uint32_t thread(int lane) const { return number * LANES + (uint32_t)lane; }
};

/* "kernel NAME, block (x,y,z), thread T: INSTRUCTION" */
std::string place(const Warp &w, const Insn &in, int lane);
[[noreturn]] void fault(int error, const std::string &what, const Warp &w, const Insn &in, int lane);

/* Actions outside of ptx_forms.cpp. */
Action load, load_parameter, store, atomic, take_address, give_address;                          /* ptx_memory.cpp */
Action shuffle, reduce, multiply_tiles, load_matrix, start_copy, commit_copies, wait_for_copies; /* ptx_warp.cpp */
Action multiply_floats;                                                                          /* ptx_tensor.cpp */
int major_capability(); /* of the GPU whose tensor cores these are */

inline uint64_t address_in(Warp &w, const Operand &o, int lane) {
    return o.width == 4 ? w.at<uint32_t>(o)[lane] : w.at<uint64_t>(o)[lane];
}
/* Those of all lanes; whether the lanes of a mask have the same. */
inline void addresses_of(Warp &w, const Insn &in, uint64_t addresses[LANES]) {
    const uint64_t offset = (uint64_t)in.offset;
    if (in.o[0].width == 4)
        for (uint32_t i = 0; i < LANES; i++)
            addresses[i] = w.at<uint32_t>(in.o[0])[i] + offset;
    else
        for (uint32_t i = 0; i < LANES; i++)
            addresses[i] = w.at<uint64_t>(in.o[0])[i] + offset;
}
inline bool is_one_address(const uint64_t addresses[LANES], uint32_t lanes) {
    const uint64_t first = addresses[__builtin_ctz(lanes)];
    uint64_t others = 0;
    for (uint32_t i = 0; i < LANES; i++)
        others |= lanes >> i & 1 ? addresses[i] ^ first : 0;
    return !others;
}
enum class Access { READ, WRITE, ATOMIC };
/* The bytes at an address, after all checks; of a frame no more than the first 8. */
unsigned char *reach(Warp &w, const Insn &in, int lane, uint64_t address, uint32_t bytes, Access how);
unsigned char *reach_global(Warp &w, const Insn &in, int lane, uint64_t address, uint32_t bytes, Access how);
void count_wavefronts(Warp &w, const Insn &in);
uint32_t shared_offset(Warp &w, const Insn &in, int lane, uint64_t address, uint32_t bytes);
enum : unsigned char { SHARED_WRITTEN = WRITTEN, SHARED_ON_ITS_WAY };
void read_shared(Warp &w, const Insn &in, int lane, uint32_t at, uint32_t bytes);
void write_shared(Warp &w, const Insn &in, int lane, uint32_t at, uint32_t bytes, unsigned char state);

} // namespace ptx

#endif
