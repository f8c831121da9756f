/* ptx_text.h - words of PTX. */
#ifndef FLEXLAB_TESTS_PTX_TEXT_H
#define FLEXLAB_TESTS_PTX_TEXT_H

#include "ptx.h"

#include <cctype>
#include <cstdlib>

namespace ptx {

/* Reads a part of a text word by word: names, numbers and directives, and signs one by one. */
class Reader {
  public:
    Reader(const std::string &text, size_t from, size_t to) : text_(text), at_(from), end_(to) {}
    bool done() {
        skip_space();
        return at_ >= end_;
    }
    size_t position() const { return at_; }
    std::string_view word() {
        skip_space();
        const size_t from = at_;
        if (at_ < end_ && text_[at_] == '"') {
            at_ = text_.find('"', at_ + 1) + 1;
        } else {
            if (at_ + 1 < end_ && text_[at_] == '-' && isdigit((unsigned char)text_[at_ + 1]))
                at_++;
            while (at_ < end_ && is_of_word(text_[at_]))
                at_++;
            if (at_ == from && at_ < end_)
                at_++;
        }
        return std::string_view(text_).substr(from, at_ - from);
    }
    std::string_view peek() {
        skip_space();
        const size_t from = at_;
        const std::string_view next = word();
        at_ = from;
        return next;
    }
    bool take(std::string_view sign) {
        skip_space();
        if (std::string_view(text_).substr(at_, sign.size()) != sign)
            return false;
        at_ += sign.size();
        return true;
    }
    void need(std::string_view sign) {
        if (!take(sign))
            give_up("expected '" + std::string(sign) + "' before: " + text_.substr(at_, 60));
    }
    /* What is before the next `sign`, and behind it goes the reading on. */
    std::string_view skip_past(std::string_view sign) {
        const size_t from = at_, to = text_.find(sign, at_);
        if (to == std::string::npos)
            give_up("no '" + std::string(sign) + "' behind: " + text_.substr(from, 60));
        at_ = to + sign.size();
        return std::string_view(text_).substr(from, to - from);
    }
    /* Behind an opening brace: goes behind the closing one, whose place is returned. */
    size_t skip_braces() {
        for (int depth = 1; at_ < end_; at_++)
            if (text_[at_] == '{')
                depth++;
            else if (text_[at_] == '}' && !--depth)
                return at_++;
        give_up("a brace that is not closed");
    }

  private:
    static bool is_of_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.'; }
    void skip_space() {
        for (;;) {
            while (at_ < end_ && (isspace((unsigned char)text_[at_]) || !text_[at_]))
                at_++;
            if (text_.compare(at_, 2, "//") == 0 && at_ < end_)
                skip_past("\n");
            else if (text_.compare(at_, 2, "/*") == 0 && at_ < end_)
                skip_past("*/");
            else
                return;
        }
    }
    const std::string &text_;
    size_t at_, end_;
};

struct Declared {
    std::string_view name;
    uint32_t align = 0, element = 0, bytes = 0;
    bool unsized = false;
};
Declared read_declared(Reader &r);
uint32_t bytes_of_type(std::string_view type); /* ".b32": 4; ".pred": 0 */
uint64_t number_of(std::string_view word);

} // namespace ptx

#endif
