/* page_head.c - see page_head.h. */
#include "report/page_head.h"
#include "base/table.h"
#include "report/report_assets.h"

/* 64 hexadecimal digits as the base64 that a policy names a script by. */
static void write_digest(FILE *out, const char *hex) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 33; i += 3) {
        unsigned value = 0, bytes = 0;
        for (int k = i; k < i + 3; k++) {
            unsigned byte = 0;
            if (k < 32 && sscanf(hex + 2 * (size_t)k, "%2x", &byte) == 1)
                bytes++;
            value = value << 8 | byte;
        }
        for (unsigned k = 0; k < 4; k++)
            fputc(k <= bytes ? digits[value >> (18 - 6 * k) & 63] : '=', out);
    }
}

void page_begin(FILE *out, const char *title, const char *script) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; ",
          out);
    if (script) {
        fputs("script-src 'sha256-", out);
        write_digest(out, script);
        fputs("'; ", out);
    }
    fputs("base-uri 'none'; form-action 'none'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          out);
    html_text(out, title);
    fprintf(out, " – flexlab</title>\n<style>\n%s</style></head>\n<body><main>\n<h1>", (const char *)report_style);
}
