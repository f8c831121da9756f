/* float_symbols.h - symbols of what is compiled for each float format, FL_KIND, and instruction set, FL_ISA: the
 * format, the function, the instruction set, so that profilers, debuggers and readers can tell them apart. */
#define FL_PASTE_3(kind, x, isa) kind##_##x##_##isa
#define FL_PASTE(kind, x, isa) FL_PASTE_3(kind, x, isa)
#define FL_PASTE_GLOBAL_3(kind, x, isa) fl_##kind##_##x##_##isa
#define FL_PASTE_GLOBAL(kind, x, isa) FL_PASTE_GLOBAL_3(kind, x, isa)
#define FL_GLOBAL(x) FL_PASTE_GLOBAL(FL_KIND, x, FL_ISA)
#define FL_ROW FL_PASTE(fl, FL_KIND, FL_ISA)
