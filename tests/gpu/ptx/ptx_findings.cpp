/* ptx_findings.cpp - options, findings, and the report of a process. */
#include "ptx.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace ptx {

static uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *const text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

static Options read_options() {
    Options o;
    o.seed = from_environment("FLEXLAB_PTX_SEED", o.seed);
    o.bytes = from_environment("FLEXLAB_PTX_BYTES", o.bytes);
    o.devices = (int)from_environment("FLEXLAB_PTX_DEVICES", 1);
    o.driver = (int)from_environment("FLEXLAB_PTX_DRIVER", 0);
    o.arch = (int)from_environment("FLEXLAB_PTX_ARCH", (uint64_t)o.arch);
    o.shared_bytes = (uint32_t)from_environment("FLEXLAB_PTX_SHARED_KIB", o.shared_bytes >> 10) << 10;
    const char *const checks = getenv("FLEXLAB_PTX_CHECKS");
    std::string word;
    for (const char *c = checks ? checks : "";; c++) {
        if (*c && *c != ',') {
            word += *c;
            continue;
        }
        const std::pair<const char *, bool *> words[] = {
            {"diverge", &o.diverge}, {"nan", &o.nan},     {"registers", &o.registers}, {"races", &o.races},
            {"pinned", &o.pinned},   {"banks", &o.banks}, {"traffic", &o.traffic}};
        const auto *const known =
            std::find_if(std::begin(words), std::end(words), [&](auto &of) { return word == of.first; });
        if (known != std::end(words))
            *known->second = true;
        else if (!word.empty())
            give_up("FLEXLAB_PTX_CHECKS: unknown: " + word);
        word.clear();
        if (!*c)
            return o;
    }
}

const Options &options() {
    static const Options o = read_options();
    return o;
}

enum { MOST_TEXTS = 4 };
static auto &found = *new std::map<std::string, std::pair<long, std::vector<std::string>>>;

void find(const char *kind, const std::string &text) {
    auto &[count, texts] = found[kind];
    count++;
    for (const std::string &t : texts)
        if (t == text)
            return;
    if (texts.size() == MOST_TEXTS)
        return;
    texts.push_back(text);
    fprintf(stderr, "ptx: FINDING: %s: %s\n", kind, text.c_str());
    static const bool edited = getenv("FLEXLAB_PTX_EDIT") != nullptr;
    if (edited) { /* a mistake made on purpose is noticed: that is all */
        fflush(nullptr);
        _exit(PTX_STATUS);
    }
}

long findings() {
    long sum = 0;
    for (auto &f : found)
        sum += f.second.first;
    return sum;
}

void give_up(const std::string &text) {
    fflush(nullptr);
    fprintf(stderr, "ptx: FINDING: %s\n", text.c_str());
    _exit(PTX_STATUS);
}

void end_of_process() {
    find_conflicts();
    if (const char *path = getenv("FLEXLAB_PTX_REPORT"))
        if (FILE *f = fopen(path, "w")) {
            const std::vector<uint64_t> &counts = opcode_counts();
            fprintf(f, "instructions %llu\nfindings %ld\n", (unsigned long long)instructions_run(), findings());
            for (size_t i = 0; i < counts.size(); i++)
                if (counts[i])
                    fprintf(f, "opcode %s %llu\n", opcode_names()[i].c_str(), (unsigned long long)counts[i]);
            report_kernels(f);
            fclose(f);
        }
    if (!findings())
        return;
    fflush(nullptr);
    for (auto &f : found)
        fprintf(stderr, "ptx: FINDING: %s: %ld times\n", f.first.c_str(), f.second.first);
    _exit(PTX_STATUS);
}

} // namespace ptx
