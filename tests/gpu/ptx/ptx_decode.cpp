/* ptx_decode.cpp - the body of a kernel, with the functions that it calls, as a program. */
#include "ptx_text.h"

#include <algorithm>
#include <deque>

namespace ptx {

static std::unordered_map<std::string, uint32_t> &numbers = *new std::unordered_map<std::string, uint32_t>;
static std::vector<std::string> &names = *new std::vector<std::string>;

uint32_t opcode_number(std::string_view opcode) {
    auto [it, is_new] = numbers.emplace(std::string(opcode), (uint32_t)names.size());
    if (is_new)
        names.push_back(it->first);
    return it->second;
}

const std::vector<std::string> &opcode_names() {
    return names;
}

namespace {

/* Calls copy their arguments to the frame of the function, whose parameters have one place each: nothing recurs. Each
 * has a multiple of 16 bytes. */
struct Moves {
    std::vector<std::pair<uint32_t, uint32_t>> pairs; /* from, to in the frame */
    std::vector<uint32_t> bytes;
};
std::deque<Moves> &all_moves = *new std::deque<Moves>;

void move_in_frame(Warp &w, const Insn &in) {
    const Moves &moves = all_moves[(size_t)in.offset];
    for (uint32_t states = 0; states <= options().registers; states++)
        for (size_t i = 0; i < moves.pairs.size(); i++)
            for (uint32_t at = states * w.frame_bytes, end = at + moves.bytes[i]; at < end; at += 8) {
                const unsigned char *const from = w.in_frame(at + moves.pairs[i].first, 0);
                unsigned char *const to = w.in_frame(at + moves.pairs[i].second, 0);
                for (const int lane : Lanes{w.exec})
                    memcpy(to + 8 * lane, from + 8 * lane, 8);
            }
}

struct Called {
    std::string_view name;
    uint32_t number, first;
    std::vector<Variable> formals; /* the result first, where there is one */
    std::vector<uint32_t> sizes;
    std::unordered_map<std::string_view, Variable> names;
};

class Decoder {
  public:
    Decoder(const Module &module, Kernel &kernel) : m_(module), k_(kernel) {}

    void decode() {
        const Module::Function *f = m_.function(k_.name);
        if (!f || !f->entry)
            give_up("no kernel " + k_.name);
        std::copy(f->most_threads, f->most_threads + 3, k_.most_threads);
        open_scope();
        for (const char *name : {"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y",
                                 "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"})
            registers_[0][name] = new_register(4); /* the first: ptx_run.cpp writes them */
        Reader head(m_.text(), f->head, f->body);
        head.word();
        parameters(head, nullptr);
        body(*f, Kind::EXIT, 0);
        for (size_t i = 0; i < called_.size(); i++) { /* bodies may call more of them */
            called_[i]->first = (uint32_t)k_.program.size();
            registers_.resize(1);
            variables_.resize(1);
            variables_.push_back(called_[i]->names);
            registers_.emplace_back();
            body(*m_.function(called_[i]->name), Kind::RETURN, called_[i]->number);
        }
        for (Insn &in : k_.program) {
            if (in.kind == Kind::CALL)
                in.target = called_[in.function]->first;
            in.simple = in.kind == Kind::PLAIN && in.flow == Flow::OF_ALL && in.guard < 0;
            k_.barriers |= in.kind == Kind::BARRIER;
            if (in.space == Space::SHARED && in.kind == Kind::PLAIN)
                k_.grain = std::min<uint32_t>(k_.grain, in.bytes);
            else if (in.space == Space::GENERIC && in.accesses)
                k_.grain = 1; /* it may be shared memory */
        }
        k_.grain_bits = (uint32_t)__builtin_ctz(k_.grain);
        mark_inner_loops();
        k_.functions = (uint32_t)called_.size();
        k_.frame_bytes = (k_.frame_bytes + 15) / 16 * 16;
    }

  private:
    /* Those that multiply and add, of which none is in another; without loops in them that do not. */
    void mark_inner_loops() {
        size_t latest = 0; /* where the latest of those before begins */
        for (const bool multiply : {true, false})
            for (size_t end = 0; end < k_.program.size(); end++) {
                const Insn *const first = &k_.program[k_.program[end].target], *const last = &k_.program[end];
                if (last->kind != Kind::BRANCH || first > last ||
                    multiply != std::any_of(first, last, [](const Insn &in) {
                        return names[in.opcode].compare(0, 4, "mma.") == 0 ||
                               names[in.opcode].compare(0, 4, "fma.") == 0;
                    }))
                    continue;
                for (size_t i = last->target; (!multiply || last->target >= latest) && i <= end; i++)
                    k_.program[i].inner = multiply;
                latest = std::max<size_t>(latest, last->target);
            }
    }

    [[noreturn]] void fail(const std::string &why) { give_up(k_.name + ": " + why + ": " + std::string(text_)); }

    void open_scope() {
        registers_.emplace_back();
        variables_.emplace_back();
    }

    Operand new_register(uint32_t width) {
        Operand o;
        if (k_.numbers > UINT16_MAX)
            fail("too many registers");
        o.number = (uint16_t)k_.numbers++;
        o.width = (uint8_t)(width == 1 ? 2 : width);
        if (!width) {
            o.at = (int32_t)k_.predicates++;
        } else {
            k_.register_bytes = (k_.register_bytes + 63) / 64 * 64;
            o.at = (int32_t)k_.register_bytes;
            k_.register_bytes += o.width * LANES;
        }
        return o;
    }

    Operand constant(uint8_t width, uint64_t value) {
        Operand o;
        o.constant = 1;
        o.width = width;
        if (!width) {
            o.at = value != 0;
            return o;
        }
        value &= width == 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * width) - 1;
        auto [it, is_new] = pool_.emplace(std::make_pair(width, value), (uint32_t)(k_.constants.size() + 63) / 64 * 64);
        o.at = (int32_t)it->second;
        if (is_new) {
            k_.constants.resize(it->second + (size_t)width * LANES);
            for (uint32_t i = 0; i < LANES; i++)
                memcpy(&k_.constants[it->second + (size_t)i * width], &value, width);
        }
        return o;
    }

    const Operand *find_register(std::string_view name) const {
        for (size_t i = registers_.size(); i-- > 0;)
            if (const Operand *o = entry_of(registers_[i], name))
                return o;
        return nullptr;
    }

    const Variable *find_variable(std::string_view name) const {
        for (size_t i = variables_.size(); i-- > 0;)
            if (const Variable *v = entry_of(variables_[i], name))
                return v;
        return m_.variable(name);
    }

    static uint64_t address_of(const Variable &v, const Kernel &k) {
        return v.space == Space::SHARED      ? SHARED_AT + (v.at ? v.at - 1 : (k.static_shared + 127) / 128 * 128)
               : v.space == Space::FRAME     ? FRAME_AT + v.at
               : v.space == Space::PARAMETER ? PARAMETERS_AT + v.at
                                             : v.at;
    }

    /* width 0xff: that of the register. */
    Operand operand(std::string_view word, uint8_t width) {
        if (const Operand *r = find_register(word)) {
            if (width != 0xff && r->width != width)
                fail("a register of " + std::to_string(r->width) + " bytes, expected " + std::to_string(width));
            return *r;
        }
        if (const Variable *v = find_variable(word))
            return constant(width == 0xff ? 8 : width, address_of(*v, k_));
        if (word.empty() || !(isdigit((unsigned char)word[0]) || word[0] == '-'))
            fail("unknown: " + std::string(word));
        return constant(width == 0xff ? 8 : width, number_of(word));
    }

    void parameters(Reader &r, Called *called) {
        if (!r.take("("))
            return;
        while (!r.take(")")) {
            r.need(".param");
            const Declared d = read_declared(r);
            uint32_t &used = called ? k_.frame_bytes : k_.parameter_bytes;
            const uint32_t align = called ? 16 : d.align;
            used = (used + align - 1) / align * align;
            const Variable v = {called ? Space::FRAME : Space::PARAMETER, used};
            if (called) {
                called->formals.push_back(v);
                called->sizes.push_back(d.bytes);
                called->names[d.name] = v;
            } else {
                variables_[0][d.name] = v;
                k_.parameters.push_back({used, d.bytes});
            }
            used += d.bytes;
            r.take(",");
        }
    }

    Called &function(std::string_view name) {
        for (auto &c : called_)
            if (c->name == name)
                return *c;
        const Module::Function *f = m_.function(name);
        if (!f)
            fail("no function " + std::string(name));
        called_.push_back(std::unique_ptr<Called>(new Called{name, (uint32_t)called_.size(), 0, {}, {}, {}}));
        Called &c = *called_.back();
        Reader head(m_.text(), f->head, f->body);
        parameters(head, &c);
        head.word();
        parameters(head, &c);
        return c;
    }

    void body(const Module::Function &f, Kind at_end, uint32_t number) {
        std::unordered_map<std::string_view, uint32_t> labels;
        std::vector<std::pair<uint32_t, std::string_view>> branches;
        Reader r(m_.text(), f.body, f.end);
        open_scope();
        while (!r.done()) {
            if (r.take("{")) {
                open_scope();
                continue;
            }
            if (r.take("}")) {
                registers_.pop_back();
                variables_.pop_back();
                continue;
            }
            const size_t from = r.position();
            std::string_view word = r.word();
            if (word[0] == '.') {
                declaration(r, word);
                continue;
            }
            if (word[0] == '$') {
                r.need(":");
                labels[word] = (uint32_t)k_.program.size();
                continue;
            }
            Insn in;
            if (word == "@") {
                in.guard_is_not = r.take("!");
                const Operand p = operand(r.word(), 0);
                in.guard = p.at;
                in.reads.push_back(p.number);
                word = r.word();
            }
            const size_t begin = r.position();
            const std::string_view rest = r.skip_past(";");
            in.text = text_ = std::string_view(m_.text()).substr(from, begin + rest.size() - from);
            in.opcode = opcode_number(word);
            std::vector<std::string_view> words = split(rest);
            if (word == "call.uni" || word == "call") {
                call(in, words);
                continue;
            }
            if (word == "bra" || word == "bra.uni") {
                in.kind = Kind::BRANCH;
                in.how = word == "bra.uni";
                branches.push_back({(uint32_t)k_.program.size(), words.at(0)});
            } else if (word == "ret" || word == "exit") {
                in.kind = word == "ret" ? at_end : Kind::EXIT;
                in.function = number;
            } else if (word == "trap") {
                in.kind = Kind::TRAP;
            } else {
                ordinary(in, word, words);
            }
            k_.program.push_back(std::move(in));
        }
        Insn end;
        end.kind = at_end;
        end.function = number;
        end.text = "(the end)";
        end.opcode = opcode_number("(end)");
        k_.program.push_back(end);
        for (auto &[at, label] : branches) {
            const uint32_t *const place = entry_of(labels, label);
            if (!place)
                fail("no label " + std::string(label));
            k_.program[at].target = *place;
        }
    }

    void declaration(Reader &r, std::string_view word) {
        if (word == ".reg") {
            const uint32_t width = bytes_of_type(r.word());
            do {
                const std::string_view name = r.word();
                if (!r.take("<")) {
                    registers_.back()[name] = new_register(width);
                    continue;
                }
                const uint64_t count = number_of(r.word());
                r.need(">");
                for (uint64_t i = 0; i < count; i++) {
                    kept_.push_back(std::string(name) + std::to_string(i));
                    registers_.back()[kept_.back()] = new_register(width);
                }
            } while (r.take(","));
            r.need(";");
        } else if (word == ".local" || word == ".param" || word == ".shared") {
            const Declared d = read_declared(r);
            const bool shared = word == ".shared";
            uint32_t &used = shared ? k_.static_shared : k_.frame_bytes;
            const uint32_t align = shared ? d.align : 16;
            used = (used + align - 1) / align * align;
            variables_.back()[d.name] = {shared ? Space::SHARED : Space::FRAME, shared ? used + 1 : used};
            sizes_[d.name] = d.bytes;
            used += d.bytes;
            r.need(";");
        } else if (word == ".pragma") {
            r.skip_past(";");
        } else {
            fail("an unknown directive: " + std::string(word));
        }
    }

    /* At commas outside of braces and brackets, without space. */
    std::vector<std::string_view> split(std::string_view rest) {
        std::string &flat = kept_.emplace_back();
        for (char c : rest)
            if (!isspace((unsigned char)c))
                flat += c;
        std::vector<std::string_view> words;
        int depth = 0;
        size_t from = 0;
        for (size_t i = 0; i <= flat.size(); i++) {
            if (i == flat.size() || (flat[i] == ',' && !depth)) {
                if (i > from)
                    words.push_back(std::string_view(flat).substr(from, i - from));
                from = i + 1;
            } else if (strchr("{[(", flat[i])) {
                depth++;
            } else if (strchr("}])", flat[i])) {
                depth--;
            }
        }
        return words;
    }

    /* call (result), function, (arguments); the parts in parentheses are optional. */
    void call(Insn in, const std::vector<std::string_view> &words) {
        std::vector<std::string_view> result, arguments;
        std::string_view name;
        for (std::string_view word : words) {
            if (word[0] != '(')
                name = word;
            else
                (name.empty() ? result : arguments) = split(word.substr(1, word.size() - 2));
        }
        const Called &f = function(name);
        if (result.size() + arguments.size() != f.formals.size())
            fail("another number of arguments");
        auto moves = [&](const std::vector<std::string_view> &actual, size_t first, bool back) {
            Insn move = in;
            move.kind = Kind::PLAIN;
            move.action = move_in_frame;
            move.opcode = opcode_number("(arguments)");
            move.offset = (int64_t)all_moves.size();
            Moves &mine = all_moves.emplace_back();
            for (size_t i = 0; i < actual.size(); i++) {
                const Variable *v = find_variable(actual[i]);
                if (!v || v->space != Space::FRAME || sizes_.at(actual[i]) != f.sizes[first + i])
                    fail("an argument that does not fit");
                const uint32_t here = (uint32_t)v->at, there = (uint32_t)f.formals[first + i].at;
                mine.pairs.push_back(back ? std::make_pair(there, here) : std::make_pair(here, there));
                mine.bytes.push_back(f.sizes[first + i]);
            }
            k_.program.push_back(move);
        };
        moves(arguments, result.size(), false);
        in.kind = Kind::CALL;
        in.function = f.number;
        k_.program.push_back(in);
        if (!result.empty())
            moves(result, 0, true);
    }

    void address(Insn &in, Operand &o, std::string_view word) {
        if (word.size() < 3 || word[0] != '[')
            fail("expected an address: " + std::string(word));
        std::string_view base = word.substr(1, word.size() - 2);
        const size_t plus = base.find('+');
        int64_t offset = 0;
        if (plus != std::string_view::npos) {
            offset = (int64_t)number_of(base.substr(plus + 1));
            base = base.substr(0, plus);
        }
        o = operand(base, 0xff);
        if (offset && in.offset)
            fail("two addresses with offsets");
        in.offset += offset;
        if (!o.constant)
            in.reads.push_back(o.number);
        const Variable *v = find_variable(base);
        if (v && in.space == Space::PARAMETER && in.action == load && v->space == Space::PARAMETER)
            in.action = load_parameter; /* the same for all lanes */
    }

    void ordinary(Insn &in, std::string_view opcode, const std::vector<std::string_view> &words) {
        const bool taken_apart = opcode.substr(0, 4) == "mov." && words.size() == 2 && words[0][0] == '{';
        const bool put_together = opcode.substr(0, 4) == "mov." && words.size() == 2 && words[1][0] == '{';
        const std::string renamed = (taken_apart ? "unpack" : "pack") + std::string(opcode.substr(3));
        if (!form_of(taken_apart || put_together ? renamed : opcode, &in))
            fail("an unknown opcode");
        const char *letter = in.signature;
        bool result = *letter != '!';
        letter += !result;
        if (strlen(letter) != words.size())
            fail("expected " + std::to_string(strlen(letter)) + " operands");
        int n = 0;
        for (std::string_view word : words) {
            auto used = [&](const Operand &o) {
                if (o.constant && result)
                    fail("a constant as a result");
                if (!o.constant)
                    result ? in.writes.push_back(o.number) : in.reads.push_back(o.number);
            };
            switch (*letter++) {
            case '2':
            case '4':
            case '8':
            case 'p':
            case 'x': {
                const char c = letter[-1];
                used(in.o[n++] = operand(word, c == 'p' ? 0 : c == 'x' ? 0xff : (uint8_t)(c - '0')));
                break;
            }
            case 'q': {
                const size_t bar = word.find('|');
                used(in.o[n++] = operand(word.substr(0, bar), 4));
                if (bar == std::string_view::npos)
                    fail("expected a predicate as well");
                used(in.o[5] = operand(word.substr(bar + 1), 0));
                break;
            }
            case 'a':
                address(in, in.o[n++], word);
                break;
            case 'i':
                in.offset = (int64_t)number_of(word);
                break;
            default: {
                const bool many = word[0] == '{';
                const uint8_t width = letter[-1] == 't' ? 4 : 0xff;
                for (std::string_view one : many ? split(word.substr(1, word.size() - 2)) : std::vector{word}) {
                    in.more.push_back(operand(one, width));
                    if (in.more.back().constant && !result && in.accesses)
                        in.more.back() = operand(one, in.bytes < 2 ? (uint8_t)2 : in.bytes);
                    used(in.more.back());
                }
                if (letter[-1] == 'v' && in.more.size() != in.count)
                    fail("expected " + std::to_string(in.count) + " elements");
            }
            }
            result = false;
        }
        in.action = quick_form(in);
    }

    const Module &m_;
    Kernel &k_;
    std::string_view text_;
    std::vector<std::unordered_map<std::string_view, Operand>> registers_; /* of nested scopes */
    std::vector<std::unordered_map<std::string_view, Variable>> variables_;
    std::unordered_map<std::string_view, uint32_t> sizes_;
    std::map<std::pair<uint8_t, uint64_t>, uint32_t> pool_;
    std::vector<std::unique_ptr<Called>> called_;
    std::deque<std::string> kept_; /* texts that views refer to */
};

} // namespace

Kernel &Module::kernel(const std::string &name) {
    std::unique_ptr<Kernel> &k = kernels_[name];
    if (!k) {
        k.reset(new Kernel);
        k->name = name;
        Decoder(*this, *k).decode();
    }
    return *k;
}

} // namespace ptx
