/* stand_in_symbols.cpp - what the symbol tables of the program and its shared objects tell: names of kernels and places
 * of static __shared__ variables. In programs without symbols those variables are not filled with rubbish. */
#include "stand_in_internal.h"

#include <algorithm>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace stand_in {

struct Module {
    std::string path;
    size_t base; /* what is added to the addresses in the file */
    std::vector<Range> segments;
};
static auto &modules = *new std::vector<Module>;
static auto &variables = *new std::vector<Range>; /* by address */
static auto &offsets = *new std::vector<size_t>;  /* of their first bytes, one variable after the other */

typedef void Visit(void *user, const char *name, int type, size_t address, size_t bytes);

/* Calls visit for each symbol of a module. */
static void visit_symbols(const Module &module, Visit *visit, void *user) {
    const int file = open(module.path.c_str(), O_RDONLY);
    struct stat status;
    if (file < 0)
        return;
    const size_t size = fstat(file, &status) == 0 ? (size_t)status.st_size : 0;
    const char *const data = (const char *)mmap(nullptr, size + 1, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (data == MAP_FAILED)
        return;
    const ElfW(Ehdr) *const head = (const ElfW(Ehdr) *)data;
    const ElfW(Shdr) *const sections = (const ElfW(Shdr) *)(data + (size > sizeof *head ? head->e_shoff : 0));
    for (size_t i = 0; size > sizeof *head && i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        const char *const names = data + sections[sections[i].sh_link].sh_offset;
        const ElfW(Sym) *const symbols = (const ElfW(Sym) *)(data + sections[i].sh_offset);
        for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++)
            if (symbols[j].st_shndx != SHN_UNDEF)
                visit(user, names + symbols[j].st_name, symbols[j].st_info & 15, module.base + symbols[j].st_value,
                      symbols[j].st_size);
    }
    munmap((void *)data, size + 1);
}

static int add_module(struct dl_phdr_info *info, size_t, void *) {
    Module m{info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe", info->dlpi_addr, {}};
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD)
            m.segments.push_back({(unsigned char *)m.base + info->dlpi_phdr[i].p_vaddr, info->dlpi_phdr[i].p_memsz});
    modules.push_back(std::move(m));
    return 0;
}

static int read_load_count(struct dl_phdr_info *info, size_t, void *count) {
    *(unsigned long long *)count = info->dlpi_adds;
    return 1;
}

/* The tag of __shared__ as mangling writes it. */
static void add_variable(void *, const char *name, int type, size_t address, size_t bytes) {
    if (type == STT_OBJECT && strstr(name, "B10gpu_shared"))
        variables.push_back({(unsigned char *)address, bytes});
}

void refresh_symbols() {
    static unsigned long long seen;
    unsigned long long count = 0;
    dl_iterate_phdr(read_load_count, &count);
    if (count == seen)
        return;
    seen = count;
    modules.clear();
    variables.clear();
    offsets.clear();
    dl_iterate_phdr(add_module, nullptr);
    for (const Module &m : modules)
        visit_symbols(m, add_variable, nullptr);
    std::sort(variables.begin(), variables.end(), [](const Range &a, const Range &b) { return a.at < b.at; });
    size_t sum = 0;
    for (const Range &r : variables) {
        offsets.push_back(sum);
        sum += r.bytes;
    }
}

const std::vector<Range> &shared_variables() {
    return variables;
}

ptrdiff_t offset_in_shared_variables(const void *p) {
    const unsigned char *const q = (const unsigned char *)p;
    auto it = std::upper_bound(variables.begin(), variables.end(), q,
                               [](const unsigned char *x, const Range &r) { return x < r.at; });
    if (it == variables.begin() || q >= (it - 1)->at + (it - 1)->bytes)
        return -1;
    --it;
    return (ptrdiff_t)offsets[(size_t)(it - variables.begin())] + (q - it->at);
}

static const Module *module_of(const void *p) {
    for (const Module &m : modules)
        for (const Range &r : m.segments)
            if ((const unsigned char *)p >= r.at && (const unsigned char *)p < r.at + r.bytes)
                return &m;
    return nullptr;
}

bool in_program(const void *p) {
    return module_of(p) != nullptr;
}

struct Search {
    size_t address;
    std::string name;
};

static void compare(void *user, const char *name, int type, size_t address, size_t bytes) {
    Search &s = *(Search *)user;
    if (type == STT_FUNC && s.address >= address && s.address < address + std::max(bytes, (size_t)1))
        s.name = name;
}

std::string symbol_name(const void *function) {
    const Module *const m = module_of(function);
    if (!m)
        return "a kernel";
    Search s{(size_t)function, ""};
    visit_symbols(*m, compare, &s);
    int status;
    char *const plain = abi::__cxa_demangle(s.name.c_str(), nullptr, nullptr, &status);
    if (plain)
        s.name = plain;
    free(plain);
    return s.name.empty() ? "a kernel" : s.name;
}

std::string code_place(const void *code) {
    const Module *const m = module_of(code);
    char text[64];
    snprintf(text, sizeof text, "%#zx", (size_t)code - 1 - (m ? m->base : 0));
    return std::string(text) + " of " + (m ? m->path : "an unknown file");
}

} // namespace stand_in
