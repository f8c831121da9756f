/* ptx_text.cpp - the outline of a PTX module: where its functions are, and its variables. */
#include "ptx_text.h"

namespace ptx {

Module::~Module() = default;

Module::Module(std::string text) : text_(std::move(text)) {
    scan();
}

/* The bytes of an initialiser: numbers, in braces where there are several. */
static void read_initial(Reader &r, uint32_t element, std::vector<unsigned char> &bytes) {
    const bool braces = r.take("{");
    size_t at = 0;
    do {
        const uint64_t value = number_of(r.word());
        if (at + element > bytes.size())
            give_up("an initialiser with more elements than its variable");
        memcpy(&bytes[at], &value, element);
        at += element;
    } while (r.take(","));
    if (braces)
        r.need("}");
}

void Module::scan() {
    Reader r(text_, 0, text_.size());
    while (!r.done()) {
        const std::string_view word = r.word();
        if (word == ".version" || word == ".address_size" || word == ".target") {
            r.word();
        } else if (word == ".visible" || word == ".weak" || word == ".extern") {
            continue;
        } else if (word == ".entry" || word == ".func") {
            Function f{r.position(), 0, 0, word == ".entry", {0, 0, 0}};
            if (r.peek() == "(") /* the result */
                r.skip_past(")");
            const std::string_view name = r.word();
            if (r.peek() == "(")
                r.skip_past(")");
            while (r.peek() != "{" && r.peek() != ";") {
                const std::string_view directive = r.word();
                if (directive == ".maxntid") {
                    int i = 0;
                    do
                        f.most_threads[i++] = (uint32_t)number_of(r.word());
                    while (r.take(","));
                } else if (directive == ".minnctapersm" || directive == ".maxnreg") {
                    r.word();
                } else if (directive != ".noreturn" && directive != ".noinline") {
                    give_up("an unknown directive of a function: " + std::string(directive));
                }
            }
            if (r.take(";")) /* a declaration */
                continue;
            r.need("{");
            f.body = r.position();
            f.end = r.skip_braces();
            functions_[name] = f;
        } else if (word == ".global" || word == ".const" || word == ".shared") {
            const Declared d = read_declared(r);
            if (word == ".shared") {
                if (!d.unsized)
                    give_up("a shared variable with a size at the scope of a module: " + std::string(d.name));
                variables_[d.name] = {Space::SHARED, 0}; /* behind the static ones of the kernel */
            } else {
                std::vector<unsigned char> bytes(d.bytes);
                if (r.take("="))
                    read_initial(r, d.element, bytes);
                variables_[d.name] = {Space::GLOBAL, new_variable(bytes)};
            }
            r.need(";");
        } else {
            give_up("not understood at the scope of a module: " + std::string(word));
        }
    }
}

/* Behind .global, .shared, .local or .param: ".align 8 .b8 name[16]". */
Declared read_declared(Reader &r) {
    Declared d;
    std::string_view word = r.word();
    if (word == ".align") {
        d.align = (uint32_t)number_of(r.word());
        word = r.word();
    }
    d.element = bytes_of_type(word);
    d.align = d.align ? d.align : d.element;
    d.name = r.word();
    d.bytes = d.element;
    while (r.take("[")) {
        if (r.take("]")) {
            d.unsized = true;
            continue;
        }
        d.bytes *= (uint32_t)number_of(r.word());
        r.need("]");
    }
    return d;
}

uint32_t bytes_of_type(std::string_view type) {
    if (type == ".pred")
        return 0;
    const uint64_t bits = type.size() > 2 ? number_of(type.substr(2)) : 0;
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
        give_up("an unknown type: " + std::string(type));
    return (uint32_t)bits / 8;
}

uint64_t number_of(std::string_view word) {
    const std::string text(word);
    char *end = nullptr;
    uint64_t value;
    if (text.size() > 2 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D' || text[1] == 'f' || text[1] == 'F'))
        value = strtoull(text.c_str() + 2, &end, 16); /* the bits of a float */
    else
        value = text[0] == '-' ? (uint64_t)strtoll(text.c_str(), &end, 0) : strtoull(text.c_str(), &end, 0);
    if (text.empty() || *end)
        give_up("not a number: " + text);
    return value;
}

} // namespace ptx
