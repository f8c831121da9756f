/* data_zip.c - the directory of a zip archive, and the positions of its members. The directory is authoritative: sizes
 * in local headers may be missing (data descriptors) or in an extra field. A member is opened only if method, name and
 * position in both agree, and sizes are possible; its checksum is checked after it was read (data_stream.c). */
#include "data/data_zip.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "data/data_inflate.h"
#include "data/data_internal.h"
#include <string.h>
#include <unistd.h>

enum { END = 22, LOCATOR = 20, END64 = 56, ENTRY = 46, LOCAL = 30, LONGEST_COMMENT = 65535, ZIP64_FIELD = 1 };
enum { STORED = 0, DEFLATED = 8, ENCRYPTED = 1 };
/* Deflate makes at most 258 bytes of two bits. */
enum { DEFLATE_RATIO = 1032 };

static uint64_t number(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static bool signature_is(const uint8_t *at, int third, int fourth) {
    return at[0] == 'P' && at[1] == 'K' && at[2] == third && at[3] == fourth;
}

static tensor_status broken(const struct fl_data_zip *zip, const char *why) {
    return fl_fail(TENSOR_E_DATA, "%s: %s is not a zip archive that can be read: %s", zip->kind, zip->path, why);
}

static tensor_status read_at(const struct fl_data_zip *zip, int64_t offset, void *to, int64_t bytes) {
    return fl_data_read_at(zip->file, zip->kind, zip->path, offset, to, bytes);
}

/* --- one entry of the directory ----------------------------------------------------------------------------------- */

struct entry {
    const uint8_t *name;
    int name_bytes, flags, method;
    uint32_t crc;
    uint64_t compressed, length, local; /* bytes in the file; bytes of the member; position of its local header */
    int64_t next;                       /* position of the next entry in the directory */
};

/* Sizes that do not fit in 32 bits are in an extra field, in this order. */
static bool take_zip64(struct entry *e, const uint8_t *extra, int64_t bytes) {
    uint64_t *wide[] = {&e->length, &e->compressed, &e->local};
    bool any = false;
    for (int i = 0; i < 3; i++)
        any |= *wide[i] == UINT32_MAX;
    while (any && bytes >= 4) {
        const int64_t size = (int64_t)number(extra + 2, 2);
        if (4 + size > bytes)
            return false;
        if (number(extra, 2) == ZIP64_FIELD) {
            int64_t at = 0;
            for (int i = 0; i < 3; i++)
                if (*wide[i] == UINT32_MAX) {
                    if (at + 8 > size)
                        return false;
                    *wide[i] = number(extra + 4 + at, 8);
                    at += 8;
                }
            return true;
        }
        extra += 4 + size;
        bytes -= 4 + size;
    }
    return true;
}

/* Reads the entry at `at`; false if there is none. */
static bool read_entry(const struct fl_data_zip *zip, int64_t at, struct entry *e) {
    const uint8_t *head = zip->directory + at;
    const int64_t left = zip->directory_bytes - at;
    if (left < ENTRY || !signature_is(head, 1, 2))
        return false;
    const int64_t name = (int64_t)number(head + 28, 2), extra = (int64_t)number(head + 30, 2),
                  comment = (int64_t)number(head + 32, 2);
    if (left < ENTRY + name + extra + comment || number(head + 34, 2) != 0)
        return false;
    *e = (struct entry){.name = head + ENTRY,
                        .name_bytes = (int)name,
                        .flags = (int)number(head + 8, 2),
                        .method = (int)number(head + 10, 2),
                        .crc = (uint32_t)number(head + 16, 4),
                        .compressed = number(head + 20, 4),
                        .length = number(head + 24, 4),
                        .local = number(head + 42, 4),
                        .next = at + ENTRY + name + extra + comment};
    return take_zip64(e, head + ENTRY + name, extra);
}

/* Returns how many members have the name; *found is the last of them. */
static int find_entry(const struct fl_data_zip *zip, const char *member, struct entry *found) {
    const size_t length = strlen(member);
    int count = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < zip->members; i++) {
        struct entry e;
        if (!read_entry(zip, at, &e))
            break; /* impossible: all entries were checked at opening */
        if ((size_t)e.name_bytes == length && !memcmp(e.name, member, length)) {
            *found = e;
            count++;
        }
        at = e.next;
    }
    return count;
}

/* --- the directory ------------------------------------------------------------------------------------------------ */

struct end {
    uint64_t members, bytes, at; /* of the directory */
    int64_t stands;              /* position of the end record */
};

static tensor_status take_end64(const struct fl_data_zip *zip, struct end *end) {
    uint8_t locator[LOCATOR], record[END64];
    tensor_status status = end->stands < LOCATOR ? TENSOR_OK : read_at(zip, end->stands - LOCATOR, locator, LOCATOR);
    if (status || end->stands < LOCATOR || !signature_is(locator, 6, 7))
        return status;
    const uint64_t at = number(locator + 8, 8);
    if (number(locator + 4, 4) != 0 || number(locator + 16, 4) != 1)
        return broken(zip, "it is one of several files");
    if (at > (uint64_t)(end->stands - LOCATOR) || (uint64_t)(end->stands - LOCATOR) - at < END64)
        return broken(zip, "the end of its zip64 directory lies outside");
    if ((status = read_at(zip, (int64_t)at, record, END64)))
        return status;
    if (!signature_is(record, 6, 6) || number(record + 16, 4) != 0 || number(record + 20, 4) != 0 ||
        number(record + 24, 8) != number(record + 32, 8))
        return broken(zip, "the end of its zip64 directory is invalid");
    *end = (struct end){number(record + 32, 8), number(record + 40, 8), number(record + 48, 8), (int64_t)at};
    return TENSOR_OK;
}

/* Finds the record at the end of the file, before a comment. */
static tensor_status find_end(const struct fl_data_zip *zip, struct end *end) {
    const int64_t most = END + LONGEST_COMMENT, count = zip->bytes < most ? zip->bytes : most;
    if (count < END)
        return fl_fail(TENSOR_E_DATA, "%s: %s is not a zip archive: it has %lld bytes, expected at least %d", zip->kind,
                       zip->path, (long long)zip->bytes, END);
    uint8_t *tail = fl_alloc((size_t)count);
    if (!tail)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld bytes of %s", zip->kind, (long long)count, zip->path);
    tensor_status status = read_at(zip, zip->bytes - count, tail, count);
    int64_t at = count - END;
    while (!status && at >= 0 &&
           !(signature_is(tail + at, 5, 6) && at + END + (int64_t)number(tail + at + 20, 2) == count))
        at--;
    if (!status && at < 0) {
        status = fl_fail(TENSOR_E_DATA, "%s: %s is not a zip archive, or is truncated: it has no end of directory",
                         zip->kind, zip->path);
    } else if (!status) {
        const uint8_t *record = tail + at;
        *end = (struct end){number(record + 10, 2), number(record + 12, 4), number(record + 16, 4),
                            zip->bytes - count + at};
        if (number(record + 4, 2) != 0 || number(record + 6, 2) != 0 || number(record + 8, 2) != end->members)
            status = broken(zip, "it is one of several files");
    }
    fl_free(tail);
    return status;
}

static tensor_status read_directory(struct fl_data_zip *zip) {
    struct end end = {0};
    tensor_status status = find_end(zip, &end);
    if (!status)
        status = take_end64(zip, &end);
    if (status)
        return status;
    if (end.at > (uint64_t)end.stands || end.bytes != (uint64_t)end.stands - end.at)
        return broken(zip, "its directory does not end where the record about it begins");
    if (!end.members || end.members > end.bytes / ENTRY)
        return broken(zip, end.members ? "its directory is too short for its members" : "it has no members");
    zip->directory_at = (int64_t)end.at;
    zip->directory_bytes = (int64_t)end.bytes;
    zip->members = (int64_t)end.members;
    if (!(zip->directory = fl_alloc((size_t)end.bytes)))
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for the directory of %s (%lld bytes)", zip->kind, zip->path,
                       (long long)zip->directory_bytes);
    if ((status = read_at(zip, zip->directory_at, zip->directory, zip->directory_bytes)))
        return status;
    int64_t at = 0;
    for (int64_t i = 0; i < zip->members; i++) {
        struct entry e;
        if (!read_entry(zip, at, &e))
            return fl_fail(TENSOR_E_DATA, "%s: %s: entry %lld of its directory is invalid", zip->kind, zip->path,
                           (long long)i);
        at = e.next;
        zip->first = i && zip->first < e.local ? zip->first : e.local;
    }
    return at == zip->directory_bytes ? TENSOR_OK : broken(zip, "its directory continues after the last member");
}

tensor_status fl_data_zip_open(struct fl_data_zip *zip, const char *kind, const char *path) {
    *zip = (struct fl_data_zip){.kind = kind, .path = path, .file = -1};
    tensor_status status = fl_data_file_open(&zip->file, &zip->bytes, kind, path, NULL);
    if (!status)
        status = read_directory(zip);
    if (status)
        fl_data_zip_close(zip);
    return status;
}

void fl_data_zip_close(struct fl_data_zip *zip) {
    if (zip->file >= 0)
        close(zip->file);
    zip->file = -1;
    fl_free(zip->directory);
    zip->directory = NULL;
}

bool fl_data_zip_has(const struct fl_data_zip *zip, const char *member) {
    struct entry e;
    return find_entry(zip, member, &e) > 0;
}

/* --- a member ----------------------------------------------------------------------------------------------------- */

static tensor_status member_broken(const struct fl_data_zip *zip, const char *member, const char *why) {
    return fl_fail(TENSOR_E_DATA, "%s: %s: %s %s", zip->kind, zip->path, member, why);
}

/* Finds the beginning of the bytes, after the local header. */
static tensor_status find_bytes(const struct fl_data_zip *zip, const char *member, const struct entry *e, int64_t *at) {
    uint8_t head[LOCAL], name[256];
    if (e->local > (uint64_t)zip->directory_at || (uint64_t)zip->directory_at - e->local < LOCAL)
        return member_broken(zip, member, "lies outside the archive");
    tensor_status status = read_at(zip, (int64_t)e->local, head, LOCAL);
    if (status)
        return status;
    const int64_t length = (int64_t)number(head + 26, 2);
    *at = (int64_t)e->local + LOCAL + length + (int64_t)number(head + 28, 2);
    if (!signature_is(head, 3, 4) || length != e->name_bytes || (int)number(head + 8, 2) != e->method ||
        length > (int64_t)sizeof name)
        return member_broken(zip, member, "has another local header than the directory says");
    if (*at > zip->directory_at || e->compressed > (uint64_t)(zip->directory_at - *at))
        return fl_fail(TENSOR_E_DATA, "%s: %s is truncated: %s has %llu bytes, %lld are before the directory",
                       zip->kind, zip->path, member, (unsigned long long)e->compressed,
                       (long long)(zip->directory_at - *at));
    if ((status = read_at(zip, (int64_t)e->local + LOCAL, name, length)))
        return status;
    return memcmp(name, e->name, (size_t)length) ? member_broken(zip, member, "has another name in its local header")
                                                 : TENSOR_OK;
}

tensor_status fl_data_zip_member(const struct fl_data_zip *zip, const char *member, struct fl_data_stream *s) {
    struct entry e;
    *s = (struct fl_data_stream){.kind = zip->kind, .path = zip->path, .member = member, .file = zip->file};
    const int count = find_entry(zip, member, &e);
    if (count != 1)
        return member_broken(zip, member, count ? "is there more than once" : "is not there");
    if (e.flags & ENCRYPTED)
        return member_broken(zip, member, "is encrypted");
    if (e.method != STORED && e.method != DEFLATED)
        return fl_fail(TENSOR_E_DATA, "%s: %s: %s is compressed by method %d, expected 0 (stored) or 8 (deflated)",
                       zip->kind, zip->path, member, e.method);
    tensor_status status = find_bytes(zip, member, &e, &s->offset);
    if (!status && zip->first)
        status = fl_fail(TENSOR_E_DATA, "%s: %s: its first member begins at byte %llu, expected 0", zip->kind,
                         zip->path, (unsigned long long)zip->first);
    if (status)
        return status;
    uint64_t most = e.compressed;
    if (e.method == DEFLATED && __builtin_mul_overflow(most, (uint64_t)DEFLATE_RATIO, &most))
        most = UINT64_MAX;
    if (e.length > most || e.length > INT64_MAX || (e.method == STORED && e.length != e.compressed))
        return fl_fail(TENSOR_E_DATA, "%s: %s: %s cannot have %llu bytes, compressed to %llu", zip->kind, zip->path,
                       member, (unsigned long long)e.length, (unsigned long long)e.compressed);
    s->length = (int64_t)e.length;
    s->checked = true;
    s->expected_crc = e.crc;
    return e.method == DEFLATED ? fl_data_inflate_new(s, (int64_t)e.compressed) : TENSOR_OK;
}
